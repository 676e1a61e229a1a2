"""The chart's README: every value of values.yaml, with its comment and its default."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

KEY = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z0-9_]+):(?P<rest>.*)$")
MOST_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a chart.

    Attributes:
        path: as `--set` names it.
        default: in JSON, or where it stands if that is long.
        about: its comment, in one line.
    """

    path: str
    default: str
    about: str


def values_of(text: str) -> list[Value]:
    """The values of a values.yaml, in its order; of those below a value only what has a comment of its own.

    Args:
        text: the file. A comment stands above its value, and is indented as it is.
    """
    defaults = yaml.safe_load(text)
    found: list[Value] = []
    comment: list[str] = []
    names: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("#"):
            comment.append(words.lstrip("#").strip())
            continue
        match = KEY.match(line)
        if match and (comment or not match["rest"].strip()):
            depth = len(match["indent"]) // 2
            names = [*names[:depth], match["name"]]
            path = ".".join(names)
            default = _look_up(defaults, names)
            if comment:
                found.append(Value(path, _told(default), " ".join(comment)))
        comment = []
    return found


def page(intro: str, about: Mapping[str, Any], text: str) -> str:
    """The README.

    Args:
        intro: what stands in front of the table, with the words VERSION and KUBERNETES where the chart's are to stand.
        about: Chart.yaml.
        text: values.yaml.
    """
    intro = intro.replace("VERSION", about["version"]).replace(
        "KUBERNETES", about["kubeVersion"].lstrip(">=").removesuffix("-0")
    )
    rows = [f"| `{value.path}` | {value.default} | {_cell(value.about)} |" for value in values_of(text)]
    return "\n".join([intro.rstrip(), "", "| value | default | meaning |", "|---|---|---|", *rows, ""])


def _look_up(values: Any, names: list[str]) -> Any:
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return None
        values = values[name]
    return values


def _told(default: Any) -> str:
    words = json.dumps(default)
    return f"`{words}`" if len(words) <= MOST_DEFAULT else "see values.yaml"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
