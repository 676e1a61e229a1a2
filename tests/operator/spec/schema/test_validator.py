"""The schema says what is refused and where, and whatever it admits is read."""

from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, parse_job
from elastic_pytorch_operator.spec.job_size import MAX_BYTES
from elastic_pytorch_operator.spec.platform.job_template import TemplateUnread
from elastic_pytorch_operator.spec.schema.validator import bound_of, compiled
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_from_schema import beyond, drawn_from, with_value
from tests.faults import assert_none
from tests.job_schema import RULE_WORDS, SCHEMA, VALIDATOR
from tests.operator.builders import a_manifest
from tests.operator.event_loop_time import MAX_TURN_CALLS, fits

PART = {
    "type": "object",
    "required": ["count"],
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "word": {"type": "string", "enum": ["one", "two"]},
        "names": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[a-z]"}},
        "either": {"x-kubernetes-int-or-string": True, "maxLength": 3},
        "yes": {"type": "boolean"},
        "pairs": {
            "type": "array",
            "minItems": 1,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
        },
        "labels": {
            "type": "object",
            "maxProperties": 1,
            "additionalProperties": {"type": "string"},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "x: must be an object, not a list"),
        ({}, "x.count: is missing"),
        ({"count": None}, "x.count: is missing"),
        ({"count": 0}, "x.count: must be greater than or equal to 1, not 0"),
        ({"count": 10}, "x.count: must be less than or equal to 9, not 10"),
        ({"count": True}, "x.count: must be a whole number, not true"),
        ({"count": "4"}, "x.count: must be a whole number, not '4': take the quotes away"),
        (
            {"count": 1, "word": "Tow"},
            "x.word: must be one of one, two, not 'Tow'; did you mean two?",
        ),
        (
            {"count": 1, "names": ["a", 1]},
            'x.names[1]: must be a string, not 1: put it in quotes, "1"',
        ),
        ({"count": 1, "names": ["a", None]}, "x.names[1]: must be a string, not null"),
        ({"count": 1, "names": ["A"]}, "x.names[0]: must match ^[a-z], unlike 'A'"),
        ({"count": 1, "names": ["a", "b", "c"]}, "x.names: must have at most 2 entries"),
        ({"count": 1, "either": 1.5}, "x.either: must be a whole number or a string, not 1.5"),
        ({"count": 1, "either": "four"}, "x.either: must have at most 3 characters"),
        ({"count": 1, "yes": 1}, "x.yes: must be true or false, not 1"),
        (
            {"count": 1, "yes": "true"},
            "x.yes: must be true or false, not 'true': take the quotes away",
        ),
        ({"count": 1, "pairs": []}, "x.pairs: must not be empty"),
        (
            {"count": 1, "pairs": [{"a": "b"}, {"a": "b"}]},
            "x.pairs[1]: the a b is there twice: remove one, or change it",
        ),
        ({"count": 1, "labels": {"a": "b", "c": "d"}}, "x.labels: must have at most 1 entries"),
        ({"count": 1, "labels": {"a": []}}, "x.labels.a: must be a string, not a list"),
        ({"count": 1, "coumt": 1}, "x.coumt: there is no such field; did you mean count?"),
        ({"count": 1, "elasticity": 1}, "x.elasticity: there is no such field: remove it"),
        ({"count": 1, 2: 1}, "x: the key 2 must be a string: put it in quotes"),
        ({"count": 1, "free": {1: 2}}, "x.free: the key 1 must be a string: put it in quotes"),
        ({"count": int("9" * 200)}, f"x.count: must be less than or equal to 9, not {'9' * 100}…"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_fault_is_named_with_its_fix(value: Any, words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        compiled(PART)(value, "x", True)
    assert str(refused.value) == words


def test_what_a_schema_admits() -> None:
    check = compiled(PART)
    check(
        {"count": 9, "either": 7, "yes": False, "names": [], "free": {"any": []}, "word": None},
        "",
        True,
    )
    check({"count": 1, "of a newer version": []}, "", False)


def test_bound_of_a_field_is_that_of_the_crd() -> None:
    assert (
        bound_of("maximum", "replicas")
        == SCHEMA["properties"]["spec"]["properties"]["replicas"]["maximum"]
    )


FIELDS = {
    name: drawn_from(schema) for name, schema in SCHEMA["properties"]["spec"]["properties"].items()
}


@st.composite
def specs(draw: st.DrawFn) -> Any:
    """Specs that the schema admits: a whole one with some other fields, or any."""
    whole = (
        a_manifest(minimum=draw(st.sampled_from([None, 1])), maximum=None)["spec"]
        if draw(st.integers(0, 9))
        else {}
    )
    names = draw(st.lists(st.sampled_from([*FIELDS]), max_size=4 if whole else 9, unique=True))
    return {**whole, **{name: draw(FIELDS[name]) for name in names}}


@given(specs())
def test_whatever_the_schema_admits_is_read_or_refused_by_a_rule(spec: Any) -> None:
    manifest = {**a_manifest(), "spec": spec}
    VALIDATOR.validate(manifest)
    try:
        assert isinstance(parse_job(manifest), Job)
    except TemplateUnread:
        return
    except InvalidJob as refused:
        assert any(words.search(str(refused)) for words in RULE_WORDS.values()), refused


def faults_of(path: str, value: int) -> Iterator[str]:
    manifest = with_value(a_manifest(), f"spec.{path}", value)
    try:
        parse_job(manifest)
    except InvalidJob as refused:
        if refused.path == f"spec.{path}" and str(value) in str(refused):
            return
    yield f"{path} may be {value}"


def test_parser_keeps_every_bound_of_the_crd() -> None:
    found = list(beyond(SCHEMA["properties"]["spec"]))
    assert ("replicas", 4097) in found
    assert_none(fault for path, value in found for fault in faults_of(path, value))


def container(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "pytorch", "image": "torch", **fields}]}}}


LARGEST: dict[str, dict[str, Any]] = {
    "words": container(args=["train.py", "x" * (MAX_BYTES - 400)]),
    "arguments": container(args=["x"] * 4096, command=["x"] * 4096),
    "variables": container(env=[{"name": f"A{n}"} for n in range(4900)]),
    "containers": {
        "template": {
            "spec": {
                "containers": [
                    {"name": "pytorch" if n == 0 else f"c{n}", "args": ["--x"] * 300}
                    for n in range(32)
                ]
            }
        }
    },
    "labels": {
        "template": {
            **a_manifest()["spec"]["template"],
            "metadata": {"labels": {f"l{n}": "x" for n in range(256)}},
        }
    },
    "rules": {
        "failurePolicy": {
            "rules": [
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [*range(1, 256)]}}
                for _ in range(20)
            ]
        }
    },
}


@pytest.mark.parametrize("fields", LARGEST.values(), ids=LARGEST)
def test_time_to_read_the_largest_job_has_a_bound(fields: dict[str, Any]) -> None:
    manifest = a_manifest(**fields)
    assert fits(lambda: parse_job(manifest), MAX_TURN_CALLS)
