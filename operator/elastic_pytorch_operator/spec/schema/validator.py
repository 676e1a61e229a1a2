"""Compares values with a structural schema of Kubernetes, as the API server does.

`make docs` copies `job.json` from `crds/elasticpytorchjobs.yaml`.
"""

import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from elastic_pytorch_operator.spec.fields import (
    MAX_SHOWN,
    InvalidJob,
    below,
    check_names,
    must_be,
    shown,
    suggest,
)
from elastic_pytorch_operator.spec.schema.rules import TWINS

Schema = Mapping[str, Any]
# It becomes a text only if something is wrong there.
Path = str | tuple["Path", str | int]
# Of a value, its path, and whether an unknown field, as of a newer version, is refused.
Check = Callable[[Any, Path, bool], None]

FILE = pathlib.Path(__file__).with_name("job.json")
TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "array": ("a list", (list,)),
    "string": ("a string", (str,)),
    "integer": ("a whole number", (int,)),
    "boolean": ("true or false", (bool,)),
}
INT_OR_STRING = ("a whole number or a string", (int, str))


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    # To RE2, unlike Python, `$` is not before a line feed at the end.
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))


# By keyword: whether a value is valid, and the words for one that is not.
BOUNDS: Mapping[str, tuple[Callable[[Any, Any], object], str]] = {
    "minimum": (lambda value, bound: value >= bound, "must be greater than or equal to {}, not {}"),
    "maximum": (lambda value, bound: value <= bound, "must be less than or equal to {}, not {}"),
    "minLength": (lambda value, bound: len(value) >= bound, "must not be empty"),
    "maxLength": (
        lambda value, bound: not isinstance(value, str) or len(value) <= bound,
        "must have at most {} characters",
    ),
    "minItems": (lambda value, bound: len(value) >= bound, "must not be empty"),
    "maxItems": (lambda value, bound: len(value) <= bound, "must have at most {} entries"),
    "maxProperties": (lambda value, bound: len(value) <= bound, "must have at most {} entries"),
    "pattern": (lambda value, bound: _expression(bound).search(value), "must match {}, unlike {}"),
}


@cache
def job_schema() -> Schema:
    found: Schema = json.loads(FILE.read_text())
    return found


@cache
def _job() -> Check:
    return compiled(job_schema())


def check_job(manifest: Mapping[str, Any], *, strict: bool = False) -> None:
    """Raises InvalidJob for the first field that the schema or a rule refuses; null is absent.

    Strict: also for unknown fields, as the API server does for `kubectl apply`. A stored job may
    have them from a newer version.
    """
    _job()(manifest, "", strict)


def bound_of(keyword: str, *path: str) -> int:
    schema = job_schema()["properties"]["spec"]
    for name in path:
        schema = schema["properties"][name]
    found: int = schema[keyword]
    return found


def text_of(path: Path) -> str:
    if isinstance(path, str):
        return path
    above, last = text_of(path[0]), path[1]
    return f"{above}[{last}]" if isinstance(last, int) else below(above, last)


def compiled(schema: Schema) -> Check:
    """The check of a schema, which admits any value of a field that it does not describe."""
    checks = tuple(_checks(schema))

    def check(value: Any, path: Path, strict: bool) -> None:
        for each in checks:
            each(value, path, strict)

    return checks[0] if len(checks) == 1 else check


def _checks(schema: Schema) -> Iterator[Check]:
    """The checks of a value, the cheapest first: each may rely on those before it."""
    if schema.get("x-kubernetes-int-or-string"):
        yield _type(*INT_OR_STRING)
    elif schema.get("type") == "object":
        yield _object(schema)
    elif "type" in schema:
        yield _type(*TYPES[schema["type"]])
    if "enum" in schema:
        yield _enum(schema["enum"])
    yield from (_bound(keyword, schema[keyword]) for keyword in BOUNDS if keyword in schema)
    if schema.get("type") == "array" and "items" in schema:
        yield _items(schema["items"])
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            yield _different(schema.get("x-kubernetes-list-map-keys") or ())
    for rule in schema.get("x-kubernetes-validations", ()):
        yield _rule(rule)


def _type(words: str, types: tuple[type, ...]) -> Check:
    def check(value: Any, path: Path, strict: bool) -> None:
        if type(value) not in types:  # to isinstance, a bool is an int
            raise InvalidJob(text_of(path), must_be(words, value))

    return check


def _enum(words: list[str]) -> Check:
    def check(value: Any, path: Path, strict: bool) -> None:
        if value not in words:
            end = suggest(str(value)[:99], words)
            raise InvalidJob(
                text_of(path), f"must be one of {', '.join(words)}, not {shown(value)}{end}"
            )

    return check


def _bound(keyword: str, bound: Any) -> Check:
    holds, words = BOUNDS[keyword]

    def check(value: Any, path: Path, strict: bool) -> None:
        if not holds(value, bound):
            raise InvalidJob(text_of(path), words.format(bound, shown(value)))

    return check


def _items(schema: Schema) -> Check:
    item, nullable = compiled(schema), schema.get("nullable")

    def check(value: Any, path: Path, strict: bool) -> None:
        for number, each in enumerate(value):
            if not (nullable and each is None):
                item(each, (path, number), strict)

    return check


def _different(keys: Sequence[str]) -> Check:
    def check(value: Any, path: Path, strict: bool) -> None:
        seen = set()
        for number, item in enumerate(value):
            found = tuple(item[key] for key in keys) if keys else item
            if found in seen:
                what = shown(item)
                if keys:
                    what = f"the {' and '.join(keys)} {', '.join(map(str, found))}"
                raise InvalidJob(
                    text_of((path, number)), f"{what} is there twice: remove one, or change it"
                )
            seen.add(found)

    return check


def _object(schema: Schema) -> Check:
    fields = {name: compiled(child) for name, child in schema.get("properties", {}).items()}
    more = compiled(schema["additionalProperties"]) if "additionalProperties" in schema else None
    free = more is not None or schema.get("x-kubernetes-preserve-unknown-fields")
    required = schema.get("required", ())

    def check(value: Any, path: Path, strict: bool) -> None:
        if type(value) is not dict:
            raise InvalidJob(text_of(path), must_be("an object", value))
        if strict:
            check_names(
                (name for name in value if not (free and isinstance(name, str))),
                fields,
                text_of(path),
            )
        for name in required:
            if value.get(name) is None:
                raise InvalidJob(text_of((path, name)), "is missing")
        for name, inner in value.items():
            of_field = fields.get(name, more)
            if of_field is not None and inner is not None:
                of_field(inner, (path, name), strict)

    return check


def _rule(rule: Schema) -> Check:
    twin, place, message = TWINS[rule["rule"]], rule["fieldPath"], rule["message"]

    def check(value: Any, path: Path, strict: bool) -> None:
        broken = twin(value)
        if broken is not None:
            found = f" (found: {str(broken[0])[:MAX_SHOWN]})" if broken else ""
            words = message % broken if "%d" in message else f"{message}{found}"
            raise InvalidJob(f"{text_of(path)}{place}".lstrip("."), words)

    return check
