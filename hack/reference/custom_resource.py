"""The CRD's schema: each field on a page, and as the operator and local mode read it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from field_table import CHANGES_WHILE_SUSPENDED

Schema = Mapping[str, Any]
MAX_INT32 = 2**31 - 1  # which is no bound for people
BOUNDS = re.compile(r" From \d+ to \d+\.")

HEAD = """# The fields of an ElasticPyTorchJob

Look up here what each field of a job means, and which values it takes. `make docs` writes this
reference from `crds/elasticpytorchjobs.yaml`, and `kubectl explain epj.spec --recursive` prints the
same texts. Where fields do not fit each other, the API server
[refuses the job](../use/troubleshooting.md#the-api-server-refuses-it) and says which field to
change. A field marked *suspended*, with all below it, may change only while the condition
`Suspended` is True.

The API is `{api}`, kind `{kind}`, short name `{short}`.

{about}
"""


def page(definition: Schema) -> str:
    spec = definition["spec"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    api, short = f"{spec['group']}/{version['name']}", ", ".join(spec["names"]["shortNames"])
    kind, about = spec["names"]["kind"], schema["description"]
    parts = [HEAD.format(api=api, kind=kind, short=short, about=about)]
    for part in ("spec", "status"):
        found = list(_walk(part, schema["properties"][part]))
        parts.append(f"## {part}\n\n{found[0][1]['description']}\n")
        fields = (field for field in found[1:] if not field[0].endswith("[]"))
        parts += [_item(path, child) for path, child in fields]
        parts.append("")
    parts.append("## Columns of `kubectl get epj`\n\nThose in brackets come with `-o wide`.\n")
    for column in version["additionalPrinterColumns"]:
        name = f"({column['name'].upper()})" if column.get("priority") else column["name"].upper()
        parts.append(f"- {name}: {_line(column['description'])}")
    return "\n".join(parts) + "\n"


def operators_schema(definition: Schema) -> str:
    """The schema by which the operator judges a job, as JSON.

    It lacks what only people or the API server need: texts, defaults, and rules that compare an
    object with its predecessor.
    """
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {
        **schema["properties"],
        "metadata": {**schema["properties"]["metadata"], **free},
        "status": free,
    }
    return json.dumps(_judging({**schema, "properties": properties}), separators=(",", ":")) + "\n"


def _judging(schema: Schema) -> Schema:
    found = {key: value for key, value in schema.items() if key not in ("description", "default")}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = _judging(found[key])
    if "properties" in found:
        found["properties"] = {name: _judging(child) for name, child in found["properties"].items()}
    rules = found.pop("x-kubernetes-validations", ())
    if lasting := [_words(rule) for rule in rules if "oldSelf" not in rule["rule"]]:
        found["x-kubernetes-validations"] = lasting
    return found


def _words(rule: Schema) -> Schema:
    """A rule with its message, in which `%d` stands for each number."""
    expression = rule.get("messageExpression", "").partition("'")[2].rpartition("'.format(")[0]
    message = " ".join((rule.get("message") or expression).split())
    return {
        "rule": " ".join(rule["rule"].split()),
        "fieldPath": rule.get("fieldPath", ""),
        "message": message,
    }


def _walk(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """A schema and all below it with their paths; a list's items end in brackets."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _walk(f"{path}.{name}", child)
    if "items" in schema:
        yield from _walk(f"{path}[]", schema["items"])


def _type_of(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema["type"] == "array":
        kind, _, bounds = _type_of(schema["items"]).partition(" ")
        return f"list of {kind}s {bounds}".rstrip()
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum", MAX_INT32)
    if low is None:
        return str(schema["type"])
    return f"{schema['type']} from {low}" + ("" if high == MAX_INT32 else f" to {high}")


def _item(path: str, schema: Schema) -> str:
    """A field as an item of a list, whose description does not repeat its type."""
    about, kind = BOUNDS.sub("", _line(schema["description"])), _type_of(schema)
    if CHANGES_WHILE_SUSPENDED in about:
        about, kind = about.replace(f" {CHANGES_WHILE_SUSPENDED}", ""), f"{kind}, *suspended*"
    return f"- `{path}` ({kind}): {about}"


def _line(text: str) -> str:
    return " ".join(text.split())
