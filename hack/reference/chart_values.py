"""The chart's README: every value of values.yaml, with its comment and its default."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import yaml


def page(intro: str, about: Mapping[str, Any], text: str) -> str:
    kubernetes = about["kubeVersion"].lstrip(">=").removesuffix("-0")
    intro = intro.replace("VERSION", about["version"]).replace("KUBERNETES", kubernetes)
    values = _values(yaml.compose(text), yaml.safe_load(text), text.splitlines(), "")
    items = (
        f"- `{path}`{f' (`{default}`)' if default else ''}: {about}"
        for path, default, about in values
    )
    return "\n".join([intro.rstrip(), "", *items, ""])


def _values(
    node: Any, defaults: Mapping[str, Any], lines: Sequence[str], prefix: str
) -> Iterator[tuple[str, str, str]]:
    """Commented values: path in `--set`, default in JSON unless it has parts, comment."""
    for key, child in node.value:
        path, default = f"{prefix}{key.value}", defaults[key.value]
        before = reversed(lines[: key.start_mark.line])
        above = takewhile(lambda line: line.lstrip().startswith("#"), before)
        has_parts = isinstance(child, yaml.MappingNode) and not child.flow_style
        if about := " ".join(line.strip(" #") for line in reversed(list(above))):
            yield path, "" if has_parts else json.dumps(default), about
        if has_parts:
            yield from _values(child, default, lines, f"{path}.")
