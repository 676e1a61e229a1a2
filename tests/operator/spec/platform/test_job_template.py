from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, parse_job
from elastic_pytorch_operator.spec.platform.job_template import (
    NOT_OF_TEMPLATES,
    Templates,
    TemplateUnread,
    over,
    usable_spec,
)
from elastic_pytorch_operator.spec.stored_job import parse_stored

from tests.operator.builders import a_manifest
from tests.operator.event_loop_time import MAX_TURN_CALLS, fits

NAME, UID = "gpu-8", "uid-8"
TITLE = f"ClusterElasticPyTorchJobTemplate {NAME}"
POD = {
    "template": {
        "spec": {
            "containers": [{"name": "pytorch", "image": "torch"}],
            "nodeSelector": {"pool": "gpu"},
        }
    }
}
CONTAINER: dict[str, Any] = {"name": "pytorch", "args": ["train.py"]}


KEPT = {"template": {"name": NAME, "uid": UID}}


def a_job(status: dict[str, Any] = KEPT, **spec: Any) -> dict[str, Any]:
    """A job with a template."""
    own = {"template": {"spec": {"containers": [CONTAINER]}}, "templateRef": {"name": NAME}, **spec}
    return {**a_manifest(**own), "status": status}


def parse(manifest: dict[str, Any], template: dict[str, Any] | None = POD) -> Job:
    """The job by a template that has been read; None: it is gone."""
    return parse_job(manifest, templates={UID: template})


ENDED = {"conditions": [{"type": "Failed", "status": "True"}]}


def suspended(true: bool = True, reason: str = "JobSuspended") -> dict[str, Any]:
    return {"conditions": [{"type": "Suspended", "status": str(true), "reason": reason}]}


def test_job_has_what_its_template_has_and_its_own_values_win() -> None:
    template = {
        **POD,
        "failurePolicy": {"maxFailures": 9, "backoffLimit": 20},
        "ttlSecondsAfterFinished": 60,
        "prepare": {},
    }
    job = parse(a_job(failurePolicy={"maxFailures": 1}), template)
    assert (job.max_failures, job.backoff_limit, job.ttl_seconds, job.prepare_seconds) == (
        1,
        20,
        60,
        1800,
    )
    assert job.template == {
        "spec": {"nodeSelector": {"pool": "gpu"}, "containers": [{**CONTAINER, "image": "torch"}]}
    }
    assert job.template_uid == UID


def test_job_may_leave_its_pods_to_the_template() -> None:
    manifest = a_job()
    del manifest["spec"]["template"]
    assert parse(manifest).template == POD["template"]


def test_extra_workers_of_a_template_are_those_beyond_the_jobs_minimum() -> None:
    template = {**POD, "scheduling": {"extraWorkers": {"nodeSelector": {"pool": "spot"}}}}
    job = parse(a_job(replicas=2, minReplicas=1, maxReplicas=2), template)
    assert [
        job.template_of(extra=extra)["spec"]["nodeSelector"]["pool"] for extra in (False, True)
    ] == [
        "gpu",
        "spot",
    ]


NOT_READ: dict[str, tuple[dict[str, Any], Templates, str | None]] = {
    "a new job": (a_job({}), {UID: POD}, None),
    "a job that is created suspended": (a_job({}, suspend=True), {}, None),
    "another template than is kept": (a_job(templateRef={"name": "gpu-1"}), {UID: POD}, None),
    "a job that resumes": (a_job({**KEPT, **suspended()}), {UID: POD}, None),
    "a status of nothing": (a_job({"template": {"name": NAME}}), {UID: POD}, None),
    "a new leader": (a_job(), {"uid-9": POD}, UID),
    "a new leader, after the end": (a_job({**KEPT, **ENDED}), {}, UID),
}
READ: dict[str, dict[str, Any]] = {
    "a job that runs": a_job({**KEPT, **suspended(False)}),
    "a suspended job": a_job({**KEPT, **suspended()}, suspend=True),
    "one whose template has been read to resume": a_job({**KEPT, **suspended(reason="JobResumed")}),
    "one that is about to be suspended": a_job(suspend=True),
}


@pytest.mark.parametrize(("manifest", "templates", "uid"), NOT_READ.values(), ids=list(NOT_READ))
def test_template_is_to_be_read(
    manifest: dict[str, Any], templates: Templates, uid: str | None
) -> None:
    with pytest.raises(TemplateUnread) as error:
        parse_stored(manifest, templates=templates)
    found = error.value
    assert (found.name, found.template_uid) == (manifest["spec"]["templateRef"]["name"], uid)


@pytest.mark.parametrize("manifest", READ.values(), ids=list(READ))
def test_template_is_not_read_again_at_another_time(manifest: dict[str, Any]) -> None:
    assert parse(manifest).template["spec"]["nodeSelector"] == {"pool": "gpu"}


def test_job_that_ended_without_a_template_rests_without_one() -> None:
    job = parse_stored(a_job(ENDED))
    assert (job.wanted, job.template_uid) == (0, None)
    assert job.problem == f"spec.templateRef: {TITLE} has not been read yet"


@pytest.mark.parametrize(
    ("template", "spec", "words"),
    [
        (
            POD,
            {"templateRef": NAME},
            "spec.templateRef: must be an object with the name of a template",
        ),
        (
            {**POD, "failurePolicy": {"maxFailures": "many"}},
            {},
            f"spec.failurePolicy.maxFailures: must be a whole number, not 'many' (with {TITLE})",
        ),
        (
            {**POD, "progressDeadlineSeconds": 5},
            {"rendezvous": {"backend": "c10d"}},
            "stock torchrun offers none of them (found: progressDeadlineSeconds) "
            "(with ClusterElastic",
        ),
        (
            POD,
            {"template": {"spec": {"containers": [{"name": "train", "args": ["train.py"]}]}}},
            "spec.template.spec.containers: must contain one that is named pytorch if "
            "templateRef is set",
        ),
        (
            {**POD, "scheduling": {"extraWorkers": {}}},
            {"minReplicas": None, "maxReplicas": None},
            "spec.scheduling.extraWorkers: may not be set while minReplicas is unset: "
            "set spec.minReplicas to make the job elastic "
            f"(with {TITLE})",
        ),
        ({}, {"template": {"spec": {}}}, "spec.template.spec.containers: needs a container (with "),
    ],
)
def test_whole_is_checked_and_the_template_is_named(
    template: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidJob) as error:
        parse(a_job(**spec), template)
    assert words in str(error.value)


@pytest.mark.parametrize("name", NOT_OF_TEMPLATES)
def test_what_is_each_jobs_own_is_in_no_template(name: str) -> None:
    with pytest.raises(
        InvalidJob, match=rf"gpu-8 must not have spec\.{name}, which is each job's own"
    ):
        usable_spec({"metadata": {"name": NAME}, "spec": {name: 1}})


@pytest.mark.parametrize(
    "path", [("template", "spec"), ("scheduling", "extraWorkers")], ids=".".join
)
@pytest.mark.parametrize(("above", "below"), [(100_000, 0), (0, 100_000), (100_000, 2_500)])
def test_tolerations_are_counted_before_each_is_compared_with_all_of_the_template(
    path: tuple[str, str], above: int, below: int
) -> None:
    outer, inner = path

    def refused() -> None:
        with pytest.raises(
            InvalidJob, match=rf"spec\.{outer}\.{inner}\.tolerations: must have at most 200 entries"
        ):
            over(tolerating(below), tolerating(above))

    def tolerating(number: int) -> dict[str, Any]:
        return (
            {outer: {inner: {"tolerations": [{"key": f"{n + number}"} for n in range(number)]}}}
            if number
            else {}
        )

    assert fits(refused, 50 * MAX_TURN_CALLS), "a hundred million comparisons take minutes"


def test_template_without_a_spec_is_one_of_nothing() -> None:
    assert usable_spec({"metadata": {"name": NAME}}) == {}


def test_ended_job_that_cannot_be_read_is_removed_as_its_template_says() -> None:
    templates = {UID: {"ttlSecondsAfterFinished": 60, "cleanPodPolicy": "All"}}
    manifest = a_job({**KEPT, **ENDED}, failurePolicy={"maxFailures": "many"})
    job = parse_stored(manifest, templates=templates)
    assert (job.ttl_seconds, job.clean_pod_policy) == (60, "All")
    manifest["spec"]["templateRef"] = "broken"
    assert parse_stored(manifest, templates=templates).ttl_seconds is None
