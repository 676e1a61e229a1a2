"""What was done to a simulated world, and what operator and agents did, as lines."""

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

SUFFIX = re.compile(r"-worker-(\d+)-[a-z0-9]+")
TOLD_BY = (
    "elastic_pytorch_operator.reconcile.controller",
    "elastic_pytorch_operator.reconcile.execute",
)


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened.

    Attributes:
        at: seconds since the world's begin, skipped ones included.
        who: a job, a node, a replica, or `act` for what was done to the world.
        what: a clause.
    """

    at: float
    who: str
    what: str


@dataclass
class Story:
    """All that happened, in order."""

    clock: Callable[[], float]
    lines: list[Line] = field(default_factory=list)

    def tell(self, who: str, what: str) -> None:
        self.lines.append(Line(self.clock(), who, what))

    @property
    def digest(self) -> str:
        """What two runs that are the same have in common: every line with its time."""
        text = "\n".join(f"{line.at:.6f} {line.who}: {line.what}" for line in self.lines)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def since_quiet(self) -> list[Line]:
        """What has happened since the last quiet."""
        begin = next(
            (
                n
                for n in range(len(self.lines), 0, -1)
                if self.lines[n - 1].what.startswith("stands")
            ),
            0,
        )
        return self.lines[begin:]

    def course(self) -> list[str]:
        """What was done and how each job stood, whether or not quiet was skipped."""
        return [
            f"{line.who}: {line.what}"
            for line in self.lines
            if line.who == "act" or line.what.startswith("stands")
        ]


class Ear(logging.Handler):
    """Takes into the story what the operator logs about rounds and pods, and hands rounds on.

    Args:
        story: where it goes.
        on_round: is called with the job (`namespace/name`), the number and the members of each
            round that is declared.
        on_deletion: is called with the job and the pod of each deletion of one that serves no
            longer, or is not wanted.
    """

    def __init__(
        self,
        story: Story,
        on_round: Callable[[str, int, list[str]], None],
        on_deletion: Callable[[str, str], None],
    ) -> None:
        super().__init__(logging.INFO)
        self._story, self._on_round, self._on_deletion = story, on_round, on_deletion

    def emit(self, record: logging.LogRecord) -> None:
        found = record.__dict__
        job = str(found.get("job", ""))
        match record.getMessage():
            case "declared a round":
                members = list(found["members"])
                places = ",".join(SUFFIX.search(member)[1] for member in members)  # type: ignore[index]
                self._story.tell(job, f"round {found['round']} of [{places}]: {found['reason']}")
                self._on_round(job, found["round"], members)
            case "created pod" | "deleted pod":
                why = SUFFIX.sub(r"-worker-\1", found.get("why", ""))
                self._story.tell(job, f"{record.getMessage()} {found['pod']} {why}".rstrip())
                if record.getMessage() == "deleted pod" and "no longer" in why:
                    self._on_deletion(job, found["pod"])
            case said if record.levelno >= logging.ERROR:
                fault = f": {record.exc_info[1]!r}" if record.exc_info else ""
                self._story.tell(job or "operator", f"error: {said}{fault}")

    def listen(self) -> None:
        for name in TOLD_BY:
            logging.getLogger(name).setLevel(logging.INFO)
            logging.getLogger(name).addHandler(self)

    def stop(self) -> None:
        for name in TOLD_BY:
            logging.getLogger(name).removeHandler(self)


def shrink(numbers: Sequence[int], fails: Callable[[Collection[int]], bool]) -> list[int]:
    """The fewest acts with which something still fails: without halves, quarters, single ones.

    Args:
        numbers: of the acts, with which it fails.
        fails: whether it still fails with these alone.
    """
    kept, size = list(numbers), max(1, len(numbers) // 2)
    while True:
        begin = 0
        while begin < len(kept):
            fewer = kept[:begin] + kept[begin + size :]
            if fails(fewer):
                kept = fewer
            else:
                begin += size
        if size == 1:
            return kept
        size = max(1, size // 2)
