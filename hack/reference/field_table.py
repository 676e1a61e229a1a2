"""The level of stability of each field in docs/reference/api.md, and when it may change."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

HEAD = """
## Level of each field

[Versions of the API](api-versions.md) explains the levels. All fields have the level v1beta1,
except for these with all that they contain.
"""
FIXED, BETA, PEOPLE, KUBERNETES, INTERNAL = "fixed", "v1beta1", "people", "Kubernetes", "internal"
NEVER, SUSPENDED, ALWAYS = "never", "while suspended", "at any time"
# `kubectl scale`, autoscalers and `kubectl wait` read it and the fields of the subresource scale.
FIXED_BESIDES_SCALE = ("status.readyReplicas",)
IN_WORDS = re.compile(r"\b[Ff]or people\b")
NEVER_CHANGES = "Immutable."
CHANGES_WHILE_SUSPENDED = "Immutable unless the condition `Suspended` is True."


def section(definition: Schema) -> str:
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    fixed = {path.lstrip(".") for path in version["subresources"]["scale"].values()}
    fixed |= set(FIXED_BESIDES_SCALE)
    found = (field for part in ("spec", "status") for field in fields(part, schema[part]))
    levels = {path: _level(path, child, fixed) for path, child, _ in found}
    holders = {
        path: levels.get(path.rpartition(".")[0].removesuffix("[]"), BETA) for path in levels
    }
    rows = (f"| `{path}` | {level} |" for path, level in levels.items() if level != holders[path])
    return "\n".join([HEAD, "| field | level |", "|---|---|", *rows, ""])


def fields(path: str, schema: Schema, changes: str = ALWAYS) -> Iterator[tuple[str, Schema, str]]:
    """Each field below a schema: its path, its own schema, and when it may change in a job.

    A field changes like its holder, unless its description says otherwise. Fields below one of
    Kubernetes' own are left out.
    """
    for name, child in schema.get("properties", {}).items():
        below, about, rule = f"{path}.{name}", child.get("description", ""), changes
        if CHANGES_WHILE_SUSPENDED in about:
            rule = SUSPENDED
        elif NEVER_CHANGES in about:
            rule = NEVER
        yield below, child, rule
        if not child.get("x-kubernetes-preserve-unknown-fields"):
            inside = child.get("items", child)
            yield from fields(f"{below}[]" if "items" in child else below, inside, rule)


def _level(path: str, schema: Schema, fixed: set[str]) -> str:
    if path in fixed:
        return FIXED
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return INTERNAL if path == "status.operatorState" else KUBERNETES
    for_people = path.endswith(".message") or IN_WORDS.search(schema.get("description", ""))
    return PEOPLE if for_people else BETA
