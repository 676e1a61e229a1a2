"""The command line of torchrun, split into what the operator decides, what moves into the job's spec, and what stays."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

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
# Of torch.distributed.launch: the variables instead of --local-rank, as torchrun does anyway.
DROPPED_FLAGS = {"use-env"}
WITH_VALUE = DECIDED | MOVED | KEPT
FLAGS = DECIDED_FLAGS | KEPT_FLAGS | DROPPED_FLAGS
# A variable of a shell that stands where an option or the script is expected: it can be either, or
# several words.
VARIABLE = re.compile(r"\$(?:\{?(\w+)(?:\[[@*]\])?\}?|[@*])\Z")


class UnknownOption(ValueError):
    """An option of which it is not known whether a value follows it."""


@dataclass(frozen=True, slots=True)
class TorchrunLine:
    kept: tuple[str, ...]  # options that stay, the script or module, and its arguments
    options: dict[str, str]  # the other options, spelled with dashes; flags have an empty value
    program: int  # the script's place in the words; their number: none
    removed: tuple[int, ...]  # places of the words that are not kept
    # Of the words that each option takes.
    places: dict[str, list[int]] = field(default_factory=dict)
    # Places of a shell's variables where options or the script can stand.
    variables: tuple[int, ...] = ()


def option_name(word: str) -> str | None:
    """The name of the option that a word is or begins, spelled with dashes; None: torchrun has none such.

    As torchrun's own parser does, it takes a beginning that only one option has, and a short option
    with its value in the same word.
    """
    name = word.lstrip("-").partition("=")[0].replace("_", "-")
    if name in WITH_VALUE | FLAGS:
        return name
    if not word.startswith("--"):
        return word[1] if word[1:2] in ("r", "t") else None
    longer = [
        known for known in WITH_VALUE | FLAGS if len(known) > 1 and name and known.startswith(name)
    ]
    return longer[0] if len(longer) == 1 else None


def split_line(words: Sequence[str]) -> TorchrunLine:
    """Splits the words that follow `torchrun`.

    Raises:
        UnknownOption: one of them is not known.
    """
    options: dict[str, str] = {}
    places: dict[str, list[int]] = {}
    variables: list[int] = []
    separator: list[int] = []
    place = 0
    while place < len(words):
        word = words[place]
        if VARIABLE.match(word):
            variables.append(place)
            following = next((later for later in words[place:] if not VARIABLE.match(later)), "")
            if (
                len(following) > 1
                and following.startswith("-")
                and (following == "--" or option_name(following))
            ):
                place += 1
                continue
        if not word.startswith("-") or len(word) == 1:
            break
        if word == "--":
            separator.append(place)
            place += 1
            break
        name = option_name(word)
        if name is None:
            raise UnknownOption(word)
        taken = [place]
        value = word.partition("=")[2]
        if name in WITH_VALUE and "=" not in word and (word.startswith("--") or len(word) == 2):
            value = words[place + 1] if place + 1 < len(words) else ""
            taken = [place, place + 1][: len(words) - place]
        if name not in KEPT | KEPT_FLAGS:
            options[name] = value
            places.setdefault(name, []).extend(taken)
        place += len(taken)
    removed = sorted([*separator, *(taken for found in places.values() for taken in found)])
    kept = tuple(word for index, word in enumerate(words) if index not in removed)
    return TorchrunLine(
        kept, options, min(place, len(words)), tuple(removed), places, tuple(variables)
    )
