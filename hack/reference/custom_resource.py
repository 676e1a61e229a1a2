"""The reference of the API: every field of the CRD's schema, as a page."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

HEAD = """# The fields of an ElasticPyTorchJob

Made from `crds/elasticpytorchjobs.yaml` by `make docs`; `kubectl explain epj.spec --recursive` shows the same. `{api}`, kind `{kind}`,
short name `{short}`.

{about}
"""


def page(definition: Schema) -> str:
    """The page of a resource definition."""
    spec = definition["spec"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    head = HEAD.format(
        api=f"{spec['group']}/{version['name']}",
        kind=spec["names"]["kind"],
        short=", ".join(spec["names"]["shortNames"]),
        about=schema["description"],
    )
    parts = [head]
    for part in ("spec", "status"):
        child = schema["properties"][part]
        parts += [f"## {part}\n\n{child['description']}\n", *_table(child, part), ""]
        of_the_whole = _own_rules(schema, "") if part == "spec" else ()
        rules = [*of_the_whole, *_rules(child, part)]
        if rules:
            parts += ["What is refused, and what the API server says then:\n", *[f"- {rule}" for rule in rules], ""]
    parts += ["## Columns of `kubectl get epj`\n", "| column | meaning |", "|---|---|"]
    for column in version["additionalPrinterColumns"]:
        wide = " (with `-o wide`)" if column.get("priority") else ""
        parts.append(f"| {column['name'].upper()} | {_cell(column['description'])}{wide} |")
    return "\n".join(parts) + "\n"


def _table(schema: Schema, path: str) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, child in _fields(schema, path):
        yield f"| `{name}` | {_type_of(child)} | {_cell(child['description'])} |"


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """The fields below a schema with their paths."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from _fields(child, f"{path}.{name}")
    if "properties" in (items := schema.get("items", {})):
        yield from _fields(items, f"{path}[]")


def _rules(schema: Schema, path: str) -> Iterator[str]:
    yield from _own_rules(schema, path)
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def _own_rules(schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        field = f"{path}{rule.get('fieldPath', '')}".lstrip(".")
        yield f"`{field}`: {_cell(rule.get('message') or _without_numbers(rule['messageExpression']))}"


def _without_numbers(expression: str) -> str:
    """The text of a message that is formatted with numbers, with `N` in their places."""
    return expression.partition("'")[2].rpartition("'.format(")[0].replace("%d", "N")


def _type_of(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema["type"] == "array":
        kind, _, bounds = _type_of(schema["items"]).partition(" ")
        return f"list of {kind}s {bounds}".rstrip()
    if "enum" in schema:
        return " \\| ".join(f"`{word}`" for word in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = ""
    if low is not None:
        bounds = f"from {low}" if high is None else f"from {low} to {high}"
    return " ".join(filter(None, [schema["type"], bounds]))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
