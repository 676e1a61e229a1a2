"""YAML as Kubernetes reads it: `1:3` and dates are strings, unlike for PyYAML, `1e-4` a number."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

INT = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z"
)
WORDS_FOR_BOOLEANS = re.compile(r"[yYnN]\Z")  # for older readers
DIGITS = list("-+0123456789.")
NOT_AS_PYYAML = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"}


class Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    """Quotes strings as Kubernetes needs it, indents lists, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


for _kind in (Loader, _Dumper):
    _kind.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in NOT_AS_PYYAML]
        for first, resolvers in _kind.yaml_implicit_resolvers.items()
    }
    _kind.add_implicit_resolver("tag:yaml.org,2002:int", INT, DIGITS)
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, DIGITS)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", WORDS_FOR_BOOLEANS, list("yYnN"))


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    short = (isinstance(item, (int, str)) and "\n" not in str(item) for item in items)
    words = bool(items) and all(short)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def read_documents(text: str) -> list[Any]:
    """All documents of a text, without empty ones; raises yaml.YAMLError."""
    return [document for document in yaml.load_all(text, Loader) if document is not None]


def write_documents(documents: Iterable[Any]) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
