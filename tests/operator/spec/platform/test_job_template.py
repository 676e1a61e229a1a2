"""A job with `templateRef` is its own spec over the template that its status keeps, or says what is wrong with the two together."""

import time
from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.platform.job_template import MAX_BYTES, NOT_OF_TEMPLATES, TemplateUnread, keep, over
from elastic_pytorch_operator.spec.stored_job import parse_stored

from tests.operator.builders import a_manifest

NAME = "gpu-8"
TITLE = f"ClusterElasticPyTorchJobTemplate {NAME}"
POD = {"template": {"spec": {"containers": [{"name": "pytorch", "image": "torch"}], "nodeSelector": {"pool": "gpu"}}}}
CONTAINER: dict[str, Any] = {"name": "pytorch", "args": ["train.py"]}


def job_of(kept: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A job with a template, which its status keeps unless it is None."""
    own = {"template": {"spec": {"containers": [CONTAINER]}}, "templateRef": {"name": NAME}, **spec}
    template = {} if kept is None else {"template": keep({"metadata": {"name": NAME, "generation": 3}, "spec": kept})}
    return {**a_manifest(**own), "status": {**template, **(status or {})}}


def suspended(true: bool = True, reason: str = "JobSuspended") -> dict[str, Any]:
    return {"conditions": [{"type": "Suspended", "status": str(true), "reason": reason}]}


def test_job_has_what_its_template_has_and_its_own_values_win() -> None:
    template = {**POD, "failurePolicy": {"maxFailures": 9, "backoffLimit": 20}, "ttlSecondsAfterFinished": 60, "prepare": {}}
    job = parse_job(job_of(template, failurePolicy={"maxFailures": 1}))
    assert (job.max_failures, job.backoff_limit, job.ttl_seconds, job.prepare_seconds) == (1, 20, 60, 1800)
    assert job.template == {"spec": {"nodeSelector": {"pool": "gpu"}, "containers": [{**CONTAINER, "image": "torch"}]}}
    assert job.template_name == NAME


def test_job_may_leave_its_pods_to_the_template() -> None:
    manifest = job_of(POD)
    del manifest["spec"]["template"]
    assert parse_job(manifest).template == POD["template"]


def test_extra_workers_of_a_template_are_those_beyond_the_jobs_minimum() -> None:
    template = {**POD, "scheduling": {"extraWorkers": {"nodeSelector": {"pool": "spot"}}}}
    job = parse_job(job_of(template, replicas=2, minReplicas=1, maxReplicas=2))
    assert [job.template_of(index)["spec"]["nodeSelector"]["pool"] for index in (0, 1)] == ["gpu", "spot"]


UNREAD: dict[str, dict[str, Any]] = {
    "a new job": job_of(),
    "a job that is created suspended": job_of(suspend=True),
    "another template than is kept": job_of(POD, templateRef={"name": "gpu-1"}),
    "a job that resumes": job_of(POD, suspended()),
    "a status of nothing": job_of(None, {"template": {"name": NAME}}),
}
READ: dict[str, dict[str, Any]] = {
    "a job that runs": job_of(POD, suspended(False)),
    "a suspended job": job_of(POD, suspended(), suspend=True),
    "one whose template has been read to resume": job_of(POD, suspended(reason="JobResumed")),
    "one that is about to be suspended": job_of(POD, suspend=True),
}


@pytest.mark.parametrize("manifest", UNREAD.values(), ids=list(UNREAD))
def test_template_is_read_when_a_job_is_new_or_resumes(manifest: dict[str, Any]) -> None:
    with pytest.raises(TemplateUnread) as error:
        parse_job(manifest)
    assert error.value.name == manifest["spec"]["templateRef"]["name"]


@pytest.mark.parametrize("manifest", READ.values(), ids=list(READ))
def test_template_is_not_read_again_at_another_time(manifest: dict[str, Any]) -> None:
    assert parse_job(manifest).template["spec"]["nodeSelector"] == {"pool": "gpu"}


@pytest.mark.parametrize(
    ("template", "spec", "words"),
    [
        (POD, {"templateRef": NAME}, "spec.templateRef: must be an object with the name of a template"),
        (
            {**POD, "failurePolicy": {"maxFailures": "many"}},
            {},
            f"spec.failurePolicy.maxFailures: must be a whole number, not 'many' (with {TITLE})",
        ),
        (
            {**POD, "rendezvous": {"backend": "c10d"}},
            {"progressDeadlineSeconds": 5},
            "must be operator if progressDeadlineSeconds is set: stock torchrun does not offer it (with ClusterElastic",
        ),
        (
            POD,
            {"template": {"spec": {"containers": [{"name": "train", "args": ["train.py"]}]}}},
            "spec.template.spec.containers: must contain one that is named pytorch if templateRef is set",
        ),
        (
            {**POD, "scheduling": {"extraWorkers": {}}},
            {"minReplicas": None, "maxReplicas": None},
            f"spec.scheduling.extraWorkers: may not be set while minReplicas is unset: set spec.minReplicas to make the job elastic "
            f"(with {TITLE})",
        ),
        ({}, {"template": {"spec": {}}}, "spec.template.spec.containers: needs a container (with "),
    ],
)
def test_whole_is_checked_and_the_template_is_named(template: dict[str, Any], spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob) as error:
        parse_job(job_of(template, **spec))
    assert words in str(error.value)


@pytest.mark.parametrize("name", NOT_OF_TEMPLATES)
def test_what_is_each_jobs_own_is_in_no_template(name: str) -> None:
    with pytest.raises(InvalidJob, match=rf"gpu-8 must not have spec\.{name}, which is each job's own"):
        keep({"metadata": {"name": NAME}, "spec": {name: 1}})


@pytest.mark.parametrize("path", [("template", "spec"), ("scheduling", "extraWorkers")], ids=".".join)
def test_tolerations_are_counted_before_each_is_compared_with_all_of_the_template(path: tuple[str, str]) -> None:
    outer, inner = path
    many = {outer: {inner: {"tolerations": [{"key": str(number)} for number in range(100_000)]}}}
    few = {outer: {inner: {"tolerations": [{"key": f"a{number}"} for number in range(2_500)]}}}
    for above, below in ((many, {}), ({}, many), (many, few)):
        began = time.thread_time()
        with pytest.raises(InvalidJob, match=rf"spec\.{outer}\.{inner}\.tolerations: must have at most 200 entries"):
            over(below, above)
        assert time.thread_time() - began < 1.0, "a hundred million comparisons take minutes"


def test_kept_template_is_small() -> None:
    spec = {"template": {"metadata": {"annotations": {"a": "é" * (MAX_BYTES // 2)}}}}
    with pytest.raises(InvalidJob, match=f"must have at most {MAX_BYTES} bytes as JSON, not 3"):
        keep({"metadata": {"name": NAME}, "spec": spec})


@pytest.mark.parametrize("spec", [{"a": "b"}, {}, None])
def test_kept_template_says_which_it_is(spec: dict[str, Any] | None) -> None:
    template = {"metadata": {"name": NAME, "generation": 7}} | ({} if spec is None else {"spec": spec})
    assert keep(template) == {"name": NAME, "generation": 7, "spec": spec or {}}


def test_ended_job_that_cannot_be_read_is_removed_as_its_template_says() -> None:
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    manifest = job_of({"ttlSecondsAfterFinished": 60, "cleanPodPolicy": "All"}, status, failurePolicy={"maxFailures": "many"})
    assert (parse_stored(manifest).ttl_seconds, parse_stored(manifest).clean_pod_policy) == (60, "All")
    manifest["spec"]["templateRef"] = "broken"
    assert parse_stored(manifest).ttl_seconds is None
