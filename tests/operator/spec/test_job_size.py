from typing import Any

import pytest
from elastic_pytorch_operator.model.reduced_objects import reduce_job
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.job_size import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    check_size,
    size_of,
)

from tests.operator.builders import a_manifest


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ("x" * (MAX_BYTES - 12), None),
        (
            "x" * (MAX_BYTES - 11),
            f"spec: must have at most {MAX_BYTES} bytes as JSON, not {MAX_BYTES + 1}",
        ),
        ("é" * (MAX_BYTES // 2), f"spec: must have at most {MAX_BYTES} bytes as JSON"),
        ([{}] * (MAX_VALUES - 1), None),
        ([{}] * MAX_VALUES, f"spec: must hold at most {MAX_VALUES} values"),
        ({str(n): n for n in range(MAX_VALUES)}, f"spec: must hold at most {MAX_VALUES} values"),
        (nested(MAX_DEPTH), None),
        (nested(MAX_DEPTH + 1), f"spec.notes: must not hold more than {MAX_DEPTH} levels"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_too_large(notes: Any, words: str | None) -> None:
    if words is None:
        check_size({"notes": notes}, "spec")
        return
    with pytest.raises(InvalidJob, match=words):
        check_size({"notes": notes}, "spec")


def test_of_a_spec_that_is_too_large_only_plain_fields_are_kept() -> None:
    job = a_manifest(
        suspend=True,
        managedBy="x" * 1000,
        rendezvous={"backend": "c10d", "port": 1},
        ttlSecondsAfterFinished=60,
    )
    job["spec"]["template"]["spec"]["containers"][0]["notes"] = "x" * MAX_BYTES
    kept = reduce_job(job)
    assert kept["spec"] == {
        "replicas": 3,
        "suspend": True,
        "rendezvous": {"backend": "c10d"},
        "ttlSecondsAfterFinished": 60,
    }
    for manifest in (job, kept, reduce_job(kept)):
        with pytest.raises(
            InvalidJob, match=f"^spec: must have at most {MAX_BYTES} bytes as JSON, not "
        ) as error:
            parse_job(manifest)
        assert error.value.path == "spec"


def test_a_job_that_is_not_too_large_is_kept_as_it_is() -> None:
    job = a_manifest()
    assert reduce_job(job)["spec"] == job["spec"]
    assert size_of({"a": "é"}) == 10
