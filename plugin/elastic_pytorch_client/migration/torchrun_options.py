"""The command line of torchrun, split into what the operator decides, what moves into the job's spec, and what stays."""

from collections.abc import Sequence
from dataclasses import dataclass

# Who is in the group and where it meets: the operator decides that.
DECIDED = {
    "nnodes",
    "node-rank",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "master-addr",
    "master-port",
    "local-addr",
}
DECIDED_FLAGS = {"standalone"}
MOVED = {"nproc-per-node", "max-restarts"}
KEPT = {
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "log-dir",
    "r",
    "redirects",
    "t",
    "tee",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "logs-specs",
    "log-line-prefix-template",
    "numa-binding",
    "signals-to-handle",
    "shutdown-timeout",
}
KEPT_FLAGS = {"m", "module", "no-python", "run-path", "virtual-local-rank"}
DROPPED_FLAGS = {"use-env"}  # of torch.distributed.launch: the variables instead of --local-rank, as torchrun does anyway
WITH_VALUE = DECIDED | MOVED | KEPT
FLAGS = DECIDED_FLAGS | KEPT_FLAGS | DROPPED_FLAGS


class UnknownOption(ValueError):
    """An option of which it is not known whether a value follows it."""


@dataclass(frozen=True, slots=True)
class TorchrunLine:
    """What follows `torchrun`.

    Attributes:
        kept: torchrun's options that stay, the script or module, and its arguments.
        options: the values of the others by their names, spelled with dashes; flags have an empty one.
        program: where in the words the script stands; as many as there are words: there is none.
        removed: which of the words are not kept.
    """

    kept: tuple[str, ...]
    options: dict[str, str]
    program: int
    removed: tuple[int, ...]


def split_line(words: Sequence[str]) -> TorchrunLine:
    """Splits the words that follow `torchrun`.

    Raises:
        UnknownOption: one of them is not known.
    """
    options: dict[str, str] = {}
    removed: list[int] = []
    place = 0
    while place < len(words) and words[place].startswith("-") and len(words[place]) > 1:
        word = words[place]
        if word == "--":
            removed.append(place)
            place += 1
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name not in WITH_VALUE | FLAGS:
            raise UnknownOption(word)
        taken = [place]
        if name in WITH_VALUE and not equals:
            taken.append(place + 1)
            value = words[place + 1] if place + 1 < len(words) else ""
        if name not in KEPT | KEPT_FLAGS:
            options[name] = value
            removed += taken
        place += len(taken)
    kept = tuple(word for index, word in enumerate(words) if index not in removed)
    return TorchrunLine(kept, options, min(place, len(words)), tuple(removed))
