"""The remarks of a migration for its user."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Remark:
    """A part that could not be carried over, or that means something else now."""

    path: str  # the field of the old manifest
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(slots=True)
class Remarks:
    found: list[Remark] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        remark = Remark(path, text)
        if remark not in self.found:
            self.found.append(remark)

    def add_unsaid(self, others: "Remarks") -> None:
        """Adds the remarks whose texts another field does not have."""
        said = {remark.text for remark in self.found}
        self.found += [remark for remark in others.found if remark.text not in said]


class CannotMigrate(Exception):
    """A manifest that needs an answer to become an ElasticPyTorchJob."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.remark = Remark(path, text)
