"""The remarks of a migration for its user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Remark:
    """A part that could not be carried over, or that means something else now."""

    path: str  # the field of the old manifest
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(slots=True)
class Remarks:
    found: dict[Remark, None] = field(default_factory=dict)  # in their order, each once

    def add(self, path: str, text: str) -> None:
        self.found[Remark(path, text)] = None

    def drop(self, path: str, why: str) -> None:
        self.add(path, f"is dropped: {why}")

    def drop_set(self, path: str, fields: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
        """Says that those fields at a path are dropped that have a value, for their reasons."""
        for name, why in reasons.items():
            if fields.get(name) not in (None, "", {}, []):
                self.drop(f"{path}.{name}", why)

    def add_unsaid(self, others: "Remarks") -> None:
        """Adds the remarks whose texts another field does not have."""
        said = {remark.text for remark in self.found}
        self.found |= {remark: None for remark in others.found if remark.text not in said}


class CannotMigrate(Exception):
    """A manifest that needs an answer to become an ElasticPyTorchJob."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.remark = Remark(path, text)
