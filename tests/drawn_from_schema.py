"""Values that a schema admits, and those just beyond its bounds."""

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

# What a quantity or a number of processes may be, among others.
INT_OR_STRING = st.sampled_from(["auto", "cpu", "08", "8Gi", "-1", "1e3", ""])
ASCII = st.characters(codec="ascii")


def drawn_from(schema: Any) -> st.SearchStrategy[Any]:
    """Whatever a schema admits by its types and bounds."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(-9, 2000) | INT_OR_STRING | st.text(max_size=3)
    if isinstance(schema["type"], list):
        kinds = [
            {"enum": [None]} if kind == "null" else {**schema, "type": kind}
            for kind in schema["type"]
        ]
        return st.one_of(*map(drawn_from, kinds))
    return _OF_TYPE[schema["type"]](schema)


def _objects(schema: Any) -> st.SearchStrategy[Any]:
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.text(max_size=9), drawn_from(schema["additionalProperties"]), max_size=3
        )
    fields = {name: drawn_from(child) for name, child in schema.get("properties", {}).items()}
    needed = {name: fields.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional=fields)


def _lists(schema: Any) -> st.SearchStrategy[Any]:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    kind, different = schema.get("x-kubernetes-list-type"), None
    if kind in ("set", "map"):
        different = (lambda item: tuple(item[key] for key in keys)) if keys else (lambda item: item)
    least, most = schema.get("minItems", 0), min(schema.get("maxItems", 3), 3)
    return st.lists(drawn_from(schema["items"]), min_size=least, max_size=most, unique_by=different)


def _integers(schema: Any) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1)
    return st.integers(low, min(high, low + 9)) | st.integers(low, high)


def _numbers(schema: Any) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


def _texts(schema: Any) -> st.SearchStrategy[Any]:
    most = schema.get("maxLength", 9)
    if "pattern" in schema:
        # A line feed may stand behind `$` of Python, but not behind that of a schema.
        pattern = re.sub(r"\$$", r"\\Z", schema["pattern"])
        made = st.from_regex(pattern, alphabet=ASCII)
        return made.filter(lambda text: len(text) <= schema.get("maxLength", len(text)))
    return st.text(min_size=schema.get("minLength", 0), max_size=min(most, 9))


_OF_TYPE = {
    "object": _objects,
    "array": _lists,
    "integer": _integers,
    "number": _numbers,
    "string": _texts,
    "boolean": lambda _: st.booleans(),
}


def beyond(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A path and a value just beyond each bound of numbers below a schema but in lists."""
    for name, child in schema.get("properties", {}).items():
        inner = f"{path}.{name}".lstrip(".")
        yield from (
            (inner, child[key] + by)
            for key, by in (("minimum", -1), ("maximum", 1))
            if key in child
        )
        yield from beyond(child, inner)


def with_value(whole: Any, path: str, value: Any) -> Any:
    """A copy of an object with another value at a path, and the objects that hold it."""
    name, _, rest = path.partition(".")
    return {
        **(whole or {}),
        name: with_value((whole or {}).get(name), rest, value) if rest else value,
    }
