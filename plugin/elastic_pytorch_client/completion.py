"""The answers to kubectl's shell completion, which runs `kubectl_complete-epj` with the words."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_client import cli
from elastic_pytorch_client.cluster import Access, KubernetesCluster
from elastic_pytorch_client.errors import EpjError

NO_FILES, FILES = ":4", ":0"  # cobra's directives


@dataclass
class _Typed:
    """The words before the last one, as argparse would read them."""

    verb: str = ""
    names: int = 0  # words after the verb that are neither options nor their values
    options: dict[str, argparse.Action] = field(default_factory=dict)  # by all spellings
    pending: argparse.Action | None = None  # the last word is its value
    access: dict[str, Any] = field(default_factory=dict)


def candidates(
    words: Sequence[str], job_names: Callable[[Access], Sequence[str]]
) -> tuple[list[str], str]:
    """The completions of the last word, which may be empty, and the directive for the shell."""
    *before, unfinished = words or [""]
    typed = _read(before)
    if typed.pending is not None:
        found = list(map(str, typed.pending.choices or ()))
        if typed.pending.metavar == "FILE":
            return [], FILES
    elif unfinished.startswith("-"):
        found = list(typed.options)
    elif not typed.verb:
        found = list(cli.VERBS)
    elif typed.verb == "migrate":
        return [], FILES
    elif typed.verb in ("list", "ui") or typed.names:
        found = []
    else:
        found = list(job_names(Access(**typed.access)))
    return sorted(word for word in found if word.startswith(unfinished)), NO_FILES


def main() -> None:
    """Prints them, but no errors, which would disturb the command line."""
    try:
        found, directive = candidates(sys.argv[1:], _ask)
    except (EpjError, OSError):
        found, directive = [], NO_FILES
    sys.stdout.write("\n".join([*found, directive]) + "\n")


def _read(words: Sequence[str]) -> _Typed:
    typed = _Typed(options=_options(""))
    for word in words:
        option, equals, value = word.partition("=")
        if typed.pending is not None:
            _note(typed, typed.pending, word)
            typed.pending = None
        elif action := typed.options.get(option):
            if equals:
                _note(typed, action, value)
            elif action.nargs != 0:  # a flag takes none
                typed.pending = action
        elif typed.verb:
            typed.names += not word.startswith("-")
        elif word in cli.VERBS:
            typed.verb, typed.options = word, _options(word)
    return typed


def _options(verb: str) -> dict[str, argparse.Action]:
    actions = cli.actions_of(verb)
    return {spelling: action for action in actions for spelling in action.option_strings}


def _note(typed: _Typed, action: argparse.Action, value: str) -> None:
    if action.dest in Access.__dataclass_fields__:
        several = action.dest == "act_as_groups"
        known = typed.access.get(action.dest, ())
        typed.access[action.dest] = (*known, value) if several else value


def _ask(access: Access) -> list[str]:
    cluster = KubernetesCluster.connect(access)
    return [str(job["metadata"]["name"]) for job in cluster.list_jobs(cluster.namespace)]
