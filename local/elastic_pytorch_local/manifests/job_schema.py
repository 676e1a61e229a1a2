"""An ElasticPyTorchJob by the schema of the CRD, which this package carries, as the API server judges it.

The schema's rules in CEL are not here: `parse_job` has them in Python.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_operator.spec.fields import InvalidJob

from elastic_pytorch_local.manifests.known_names import below, check_names, must_be, suggest

FILE = Path(__file__).with_name("elasticpytorchjobs.yaml")
WORDS: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "object": ("an object", dict),
    "array": ("a list", list),
    "string": ("a string", str),
    "integer": ("a whole number", int),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", bool),
}
# Each: the keyword, how it measures a value, what a value of another size must have.
BOUNDS = (
    ("minimum", lambda value, bound: value >= bound, "must be at least {}, not {value!r}"),
    ("maximum", lambda value, bound: value <= bound, "must be at most {}, not {value!r}"),
    ("minLength", lambda value, bound: len(value) >= bound, "must not be empty"),
    ("maxLength", lambda value, bound: not isinstance(value, str) or len(value) <= bound, "must have at most {} characters"),
    ("pattern", lambda value, bound: re.search(bound, value), "must match {}, unlike {value!r}"),
    ("minItems", lambda value, bound: len(value) >= bound, "must not be empty"),
    ("maxItems", lambda value, bound: len(value) <= bound, "must have at most {} entries"),
    ("maxProperties", lambda value, bound: len(value) <= bound, "must have at most {} entries"),
)


@cache
def job_schema() -> Mapping[str, Any]:
    """The CRD's schema of a job, without `metadata`, which is Kubernetes' own."""
    definition = yaml.load(FILE.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {**schema, "properties": {**schema["properties"], "metadata": free}}


def check_schema(value: object, schema: Mapping[str, Any], path: str = "") -> None:
    """Compares a value with a structural schema; a field that is null is as good as absent.

    Raises:
        InvalidJob: for the first field that the schema does not have or allow; it says what to write.
    """
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise InvalidJob(path, must_be("a whole number or a string", value))
    elif schema.get("type"):
        words, type_ = WORDS[schema["type"]]
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):  # a bool is an int to Python
            raise InvalidJob(path, must_be(words, value))
    if "enum" in schema and value not in schema["enum"]:
        meant = suggest(str(value), map(str, schema["enum"]))
        raise InvalidJob(path, f"must be one of {', '.join(map(str, schema['enum']))}, not {value!r}{meant}")
    for keyword, holds, words in BOUNDS:
        if keyword in schema and not holds(value, schema[keyword]):
            raise InvalidJob(path, words.format(schema[keyword], value=value))
    if isinstance(value, list) and "items" in schema:
        _check_list(value, schema, path)
    elif isinstance(value, dict):
        _check_object(value, schema, path)


def _check_list(value: list[Any], schema: Mapping[str, Any], path: str) -> None:
    for number, item in enumerate(value):
        check_schema(item, schema["items"], f"{path}[{number}]")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    found = [tuple(item[key] for key in keys) if keys else item for item in value]
    for number, item in enumerate(found):
        if schema.get("x-kubernetes-list-type") in ("set", "map") and item in found[:number]:
            what = f"the {' and '.join(keys)} {', '.join(map(str, item))}" if keys else repr(item)
            raise InvalidJob(f"{path}[{number}]", f"{what} is there twice: remove one, or change it")


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], path: str) -> None:
    fields, more = schema.get("properties") or {}, schema.get("additionalProperties")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or more is not None
    check_names((name for name in value if not (free and isinstance(name, str))), fields, path)
    for name in schema.get("required") or ():
        if value.get(name) is None:
            raise InvalidJob(below(path, name), "is missing")
    for name, inner in value.items():
        if inner is not None and (schema_of := fields.get(name) or more):
            check_schema(inner, schema_of, below(path, name))
