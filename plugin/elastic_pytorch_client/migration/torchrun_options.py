"""torchrun's command line: what the operator decides, what moves into the spec, what stays."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# The group's members and meeting point, which the operator decides.
DECIDED = {
    *("nnodes", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
    *("master-addr", "master-port", "local-addr"),
}
DECIDED_FLAGS = {"standalone"}
MOVED = {"nproc-per-node", "max-restarts"}
KEPT = {
    *("monitor-interval", "start-method", "event-log-handler", "role", "log-dir"),
    *("r", "redirects", "t", "tee", "local-ranks-filter", "logs-specs"),
    *("duplicate-stdout-filters", "duplicate-stderr-filters", "log-line-prefix-template"),
    *("numa-binding", "signals-to-handle", "shutdown-timeout"),
}
KEPT_FLAGS = {"m", "module", "no-python", "run-path", "virtual-local-rank"}
# Of torch.distributed.launch: the variables instead of --local-rank, as torchrun does anyway.
DROPPED_FLAGS = {"use-env"}
WITH_VALUE = DECIDED | MOVED | KEPT
FLAGS = DECIDED_FLAGS | KEPT_FLAGS | DROPPED_FLAGS
# A shell's variable for options or the script; it may be several words.
VARIABLE = re.compile(r"\$(?:\{?(\w+)(?:\[[@*]\])?\}?|[@*])\Z")


def variable_of(option: str) -> str:
    return f"PET_{option.upper().replace('-', '_')}"


class UnknownOption(ValueError):
    """An unknown option, which may or may not have a value."""


@dataclass(frozen=True, slots=True)
class TorchrunLine:
    kept: tuple[str, ...]  # options that stay, the script or module, and its arguments
    options: dict[str, str]  # the other options, spelled with dashes; flags have an empty value
    program: int  # the script's index in the words; their number: none
    removed: frozenset[int]  # indexes of the words that are not kept
    places: dict[str, list[int]]  # of each option's words, and `--`
    variables: tuple[int, ...]  # indexes of a shell's variables for options or the script


def option_name(word: str) -> str | None:
    """The name of a word's option, spelled with dashes; None: torchrun has none such.

    As torchrun's own parser does, it takes an unambiguous beginning, and a short option with its
    value in the same word.
    """
    name = word.lstrip("-").partition("=")[0].replace("_", "-")
    if name in WITH_VALUE | FLAGS:
        return name
    if not word.startswith("--"):
        return word[1] if word[1:2] in ("r", "t") else None
    known = (option for option in WITH_VALUE | FLAGS if len(option) > 1)
    longer = [option for option in known if name and option.startswith(name)]
    return longer[0] if len(longer) == 1 else None


def split_line(words: Sequence[str]) -> TorchrunLine:
    """Splits the words that follow `torchrun`; raises UnknownOption."""
    options: dict[str, str] = {}
    places: dict[str, list[int]] = {}
    variables: list[int] = []
    place = 0
    while place < len(words):
        word = words[place]
        if VARIABLE.match(word):
            variables.append(place)
            following = next((later for later in words[place:] if not VARIABLE.match(later)), "")
            is_option = following == "--" or option_name(following)
            if len(following) > 1 and following.startswith("-") and is_option:
                place += 1
                continue
        if not word.startswith("-") or len(word) == 1:
            break
        if word == "--":
            places[word] = [place]
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
    removed = frozenset(taken for found in places.values() for taken in found)
    kept = tuple(word for index, word in enumerate(words) if index not in removed)
    return TorchrunLine(kept, options, place, removed, places, tuple(variables))
