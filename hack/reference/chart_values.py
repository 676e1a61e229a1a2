"""The chart's README: every value of values.yaml, with its comment and its default."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import yaml


class Value(NamedTuple):
    """A value: its path in `--set`, its default in JSON unless it has parts, and its comment."""

    path: str
    default: str
    about: str


def values_of(text: str) -> list[Value]:
    """The values of a values.yaml that have a comment above them."""
    return list(_values(yaml.compose(text), yaml.safe_load(text), text.splitlines(), ""))


def page(intro: str, about: Mapping[str, Any], text: str) -> str:
    kubernetes = about["kubeVersion"].lstrip(">=").removesuffix("-0")
    intro = intro.replace("VERSION", about["version"]).replace("KUBERNETES", kubernetes)
    items = (
        f"- `{path}`{f' (`{default}`)' if default else ''}: {about}"
        for path, default, about in values_of(text)
    )
    return "\n".join([intro.rstrip(), "", *items, ""])


def _values(
    node: Any, defaults: Mapping[str, Any], lines: Sequence[str], prefix: str
) -> Iterator[Value]:
    for key, child in node.value:
        path, default = f"{prefix}{key.value}", defaults[key.value]
        before = reversed(lines[: key.start_mark.line])
        above = takewhile(lambda line: line.lstrip().startswith("#"), before)
        has_parts = isinstance(child, yaml.MappingNode) and not child.flow_style
        if about := " ".join(line.strip(" #") for line in reversed(list(above))):
            yield Value(path, "" if has_parts else json.dumps(default), about)
        if has_parts:
            yield from _values(child, default, lines, f"{path}.")
