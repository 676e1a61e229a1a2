from typing import Any

import pytest
from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.model.reduced_objects import reduce_job
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.job_size import MAX_BYTES
from elastic_pytorch_operator.spec.stored_job import parse_stored, recorded, valid_spec

from tests.operator.builders import a_manifest

RUNS = {
    "round": 3,
    "conditions": [{"type": "Suspended", "status": "False", "reason": "NotSuspended"}],
}
RESTS = {
    "round": 3,
    "conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}],
}
VALID = {"replicas": 3, "minReplicas": 1, "maxReplicas": 4, "activeDeadlineSeconds": 60}
POD = {"containers": [{"name": "pytorch", "image": "torch", "args": ["train.py"]}]}


def a_job(
    status: dict[str, Any] | None = None, valid: dict[str, Any] | None = None, **spec: Any
) -> Job:
    return parse_stored(
        {**a_manifest(**spec), "status": RUNS if status is None else status}, valid=valid
    )


def test_valid_spec_holds_whatever_was_before() -> None:
    job = a_job({**RUNS, "lastValidSpec": VALID}, VALID, replicas=2)
    assert (job.wanted, job.problem, job.last_valid) == (2, "", None)
    assert valid_spec(job, a_manifest(replicas=2)) == a_manifest(replicas=2)["spec"]


@pytest.mark.parametrize(
    "status", [RUNS, {**RUNS, "lastValidSpec": VALID}], ids=["this leader", "the next leader"]
)
def test_running_job_goes_on_by_its_last_valid_spec(status: dict[str, Any]) -> None:
    known = VALID if status is RUNS else None
    job = a_job(status, known, replicas=2, minimum=9, suspend=False)
    assert job.problem.startswith("spec.maxReplicas: must be")
    assert (job.wanted, job.minimum, job.active_deadline_seconds, job.last_valid) == (
        3,
        1,
        60,
        VALID,
    )
    assert job.template["spec"] == POD, "which cannot change while it runs"
    assert valid_spec(job, {}) == VALID


def test_suspension_queue_and_deletion_are_those_of_the_present_object() -> None:
    manifest = {**a_manifest(minimum=9, suspend=True), "status": RUNS}
    manifest["metadata"] |= {
        "labels": {kueue.LABEL_QUEUE: "team"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    job = parse_stored(manifest, valid=VALID)
    assert (job.wanted, job.suspend, job.deleting, job.queue and job.queue.name) == (
        0,
        True,
        True,
        "team",
    )


def test_label_of_a_queue_takes_a_running_job_out_of_its_gang() -> None:
    gang = {"scheduling": {"gangScheduler": "Coscheduling", "scheduleTimeoutSeconds": 60}}
    manifest = {**a_manifest(**gang), "status": RUNS}
    manifest["metadata"]["labels"] = {kueue.LABEL_QUEUE: "team"}
    job = parse_stored(manifest, valid=manifest["spec"])
    assert (job.problem.split(":")[0], job.scheduling.gang) == (
        "spec.scheduling.gangScheduler",
        None,
    )
    assert (job.scheduling.timeout_seconds, job.queue and job.queue.name) == (60, "team")


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"activeDeadlineSeconds": 0}, {"active_deadline_seconds": None, "wanted": 3}),
        (
            {"failurePolicy": {"maxFailures": -1, "backoffLimit": 7}},
            {"max_failures": 3, "backoff_limit": 7},
        ),
        ({"failurePolicy": {"rules": [{"action": "Count"}]}}, {"rules": (), "wanted": 3}),
        ({"resizePolicy": {"allowedReplicas": [9]}}, {"allowed": (), "wanted": 3}),
        (
            {"template": {"spec": {**POD, "activeDeadlineSeconds": 60}}},
            {"template": {"spec": POD}, "wanted": 3},
        ),
        (
            {"template": {"spec": {**POD, "tolerations": "all"}}},
            {"template": {"spec": POD}, "wanted": 3},
        ),
        (
            {"activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": -1},
            {"ttl_seconds": None, "wanted": 3},
        ),
    ],
    ids=lambda value: str(value) if "wanted" not in str(value) else "",
)
def test_without_a_valid_spec_a_running_job_goes_on_without_the_fields_at_fault(
    spec: dict[str, Any], kept: dict[str, Any]
) -> None:
    job = a_job(**spec)
    assert job.problem
    assert {name: getattr(job, name) for name in kept} == kept
    assert job.last_valid is None


@pytest.mark.parametrize("digits", [1, 5000])
def test_label_that_is_a_number_of_any_length_is_left_out_alone(digits: int) -> None:
    labels = {"9" * digits: "x" * 64, "team": "a"}
    job = a_job(template={"metadata": {"labels": labels}, "spec": POD})
    assert job.problem
    assert job.template["metadata"]["labels"] == {"team": "a"}


@pytest.mark.parametrize(
    "spec",
    [
        {"minimum": 9},
        {"unitReplicas": 2, "replicas": 3},
        {"template": {}},
        {"rendezvous": {"backend": "mpi"}},
    ],
    ids=str,
)
def test_what_a_group_agrees_by_is_not_guessed(spec: dict[str, Any]) -> None:
    job = a_job(**spec)
    assert (bool(job.problem), job.wanted) == (True, 0)


def test_running_job_that_became_too_large_goes_on_where_its_last_valid_spec_is_known() -> None:
    valid = a_manifest()["spec"]
    large = reduce_job({**a_manifest(notes="x" * MAX_BYTES, suspend=False), "status": RUNS})
    job = parse_stored(large, valid=valid)
    assert (job.wanted, job.problem.split(":")[0], job.last_valid) == (3, "spec", valid)
    again = parse_stored(large, valid=valid_spec(job, large))
    assert again.template == job.template
    assert "template" not in recorded(valid)
    assert parse_stored(large).wanted == 0


@pytest.mark.parametrize(
    "status", [{}, RESTS, {"conditions": []}], ids=["new", "suspended", "waiting"]
)
def test_job_that_does_not_run_waits(status: dict[str, Any]) -> None:
    job = a_job(status, VALID, minimum=9)
    assert (job.wanted, job.suspend, job.problem.split(":")[0]) == (0, False, "spec.maxReplicas")
    assert job.last_valid is None


@pytest.mark.parametrize("spec", [None, [], {"suspend": "no", "replicas": {}}], ids=str)
@pytest.mark.parametrize("status", [{}, RUNS], ids=["new", "running"])
def test_spec_without_form_is_a_job_that_waits(spec: Any, status: dict[str, Any]) -> None:
    job = parse_stored({**a_manifest(), "spec": spec, "status": status})
    assert (job.wanted, job.suspend) == (0, False)
    assert job.problem.startswith("spec")
