"""The chart's README: every value of values.yaml, with its comment and its default."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import yaml

MAX_DEFAULT_CHARACTERS = 100


class Value(NamedTuple):
    """One value of a chart: its path as `--set` names it, its default in JSON, its comment as one line."""

    path: str
    default: str
    about: str


def values_of(text: str) -> list[Value]:
    """Returns the values of a values.yaml that have a comment, which stands in the lines above the value."""
    return list(_values(yaml.compose(text), yaml.safe_load(text), text.splitlines(), ""))


def page(intro: str, about: Mapping[str, Any], text: str) -> str:
    """Returns the README: the intro with the versions of Chart.yaml for its words VERSION and KUBERNETES, and the table of values."""
    kubernetes = about["kubeVersion"].lstrip(">=").removesuffix("-0")
    intro = intro.replace("VERSION", about["version"]).replace("KUBERNETES", kubernetes)
    rows = ["| `{}` | {} | {} |".format(*value[:2], value.about.replace("|", "\\|")) for value in values_of(text)]
    return "\n".join([intro.rstrip(), "", "| value | default | meaning |", "|---|---|---|", *rows, ""])


def _values(node: Any, defaults: Mapping[str, Any], lines: Sequence[str], prefix: str) -> Iterator[Value]:
    for key, child in node.value:
        path, default = f"{prefix}{key.value}", defaults[key.value]
        above = takewhile(lambda line: line.lstrip().startswith("#"), reversed(lines[: key.start_mark.line]))
        if about := " ".join(line.strip(" #") for line in reversed(list(above))):
            words = json.dumps(default)
            yield Value(path, f"`{words}`" if len(words) <= MAX_DEFAULT_CHARACTERS else "see values.yaml", about)
        if isinstance(child, yaml.MappingNode) and not child.flow_style:
            yield from _values(child, default, lines, f"{path}.")
