"""The operator reads a job's template when the job is new or resumes, keeps it in the status, and says what it waits for."""

from typing import Any

import pytest
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.reconcile import template_reader

from tests.operator.builders import a_manifest
from tests.operator.running_controller import Running

KIND = "ClusterElasticPyTorchJobTemplate"


def a_template(image: str = "torch", **spec: Any) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "pytorch", "image": image}]}}
    return {"kind": KIND, "metadata": {"name": "gpu"}, "spec": {"template": pod, **spec}}


def a_short_job(template: str = "gpu", **spec: Any) -> dict[str, Any]:
    own = {"spec": {"containers": [{"name": "pytorch", "args": ["train.py"]}]}}
    return a_manifest(templateRef={"name": template}, template=own, **spec)


def images(running: Running) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in running.cluster.pods()]


def kept(running: Running) -> Manifest:
    found: Manifest = running.cluster.job("lm")["status"].get("template") or {}
    return found


def reads(running: Running) -> int:
    return running.cluster.calls.count("get_template")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_reader, "MISSING_SECONDS", 0.1)


async def test_pods_are_made_from_the_template_and_the_status_keeps_it(running: Running) -> None:
    running.cluster.apply_template(a_template())
    running.cluster.apply_job(a_short_job())
    await running.until(lambda: images(running) == ["torch"] * 3)
    assert kept(running) == {"name": "gpu", "generation": 1, "spec": a_template()["spec"]}
    assert running.cluster.pods()[0]["spec"]["containers"][0]["args"] == ["train.py"]
    await running.until(lambda: "WaitingForWorkers" in running.condition("Running"))
    assert kept(running)["generation"] == 1, "the status that a plan writes keeps it"
    assert reads(running) == 1


async def test_changed_template_changes_no_pod_of_a_running_job(running: Running) -> None:
    running.cluster.apply_template(a_template())
    running.cluster.apply_job(a_short_job())
    await running.until(lambda: len(images(running)) == 3)
    running.cluster.apply_template(a_template("newer", prepare={}))
    running.cluster.scale_job("lm", 4)
    await running.until(lambda: len(images(running)) == 4)
    assert set(images(running)) == {"torch"}
    assert reads(running) == 1


async def test_resumed_job_has_the_template_as_it_is_then(running: Running) -> None:
    running.cluster.apply_template(a_template(failurePolicy={"maxFailures": 7}))
    running.cluster.apply_job(a_short_job(suspend=True))
    await running.until(lambda: running.condition("Suspended").startswith("JobSuspended"))
    assert kept(running)["generation"] == 1
    running.cluster.apply_template(a_template("newer"))
    running.cluster.apply_job(a_short_job(suspend=False))
    await running.until(lambda: images(running) == ["newer"] * 3)
    assert kept(running) == {"name": "gpu", "generation": 2, "spec": a_template("newer")["spec"]}
    await running.until(lambda: running.condition("Suspended").startswith("JobResumed: the job is not suspended"))
    assert running.events("JobResumed")
    assert reads(running) == 2


@pytest.mark.usefixtures("impatient")
async def test_job_waits_for_a_template_that_is_missing_and_begins_once_it_is_there(running: Running) -> None:
    running.cluster.apply_job(a_short_job())
    words = f'TemplateMissing: {KIND} gpu cannot be read, and is looked for again: {KIND} "gpu" not found'
    await running.until(lambda: running.condition("Running") == words)
    written = running.cluster.calls.count("patch_job_status")
    read = reads(running)
    await running.until(lambda: reads(running) >= read + 2)
    assert running.cluster.calls.count("patch_job_status") == written, "the same is not told again"
    assert running.cluster.job("lm")["status"]["state"] == "Pending"
    running.cluster.apply_template(a_template())
    await running.until(lambda: images(running) == ["torch"] * 3)


async def test_suspended_job_without_its_template_is_suspended_and_may_name_another(running: Running) -> None:
    running.cluster.apply_job(a_short_job("other", suspend=True))
    await running.until(lambda: running.condition("Suspended").startswith("JobSuspended"))
    assert running.condition("Running").startswith("TemplateMissing")
    running.cluster.apply_template(a_template())
    running.cluster.apply_job(a_short_job(suspend=True))
    await running.until(lambda: kept(running).get("name") == "gpu")
    await running.until(lambda: running.condition("Running").startswith("JobSuspended"))


@pytest.mark.usefixtures("impatient")
async def test_job_waits_for_a_template_with_which_it_is_valid(running: Running) -> None:
    running.cluster.apply_template(a_template(rendezvous={"backend": "c10d"}))
    running.cluster.apply_job(a_short_job(progressDeadlineSeconds=60))
    await running.until(lambda: running.condition("Running").startswith("TemplateMissing"))
    assert "must be operator if progressDeadlineSeconds is set" in running.condition("Running")
    assert f"(with {KIND} gpu)" in running.condition("Running")
    assert not running.condition("Failed")
    running.cluster.apply_template(a_template())
    await running.until(lambda: len(images(running)) == 3)


async def test_trouble_with_the_api_server_is_no_missing_template(running: Running) -> None:
    running.cluster.apply_template(a_template())
    running.cluster.fail_next("get_template", 500)
    running.cluster.apply_job(a_short_job())
    await running.until(lambda: len(images(running)) == 3)
    assert reads(running) == 2


async def test_permission_that_the_operator_lacks_is_told(running: Running) -> None:
    running.cluster.fail_next("get_template", 403, "forbidden")
    running.cluster.apply_job(a_short_job())
    await running.until(lambda: running.condition("Running").startswith("TemplateMissing"))
    assert running.condition("Running").endswith("looked for again: forbidden")


@pytest.mark.parametrize("spec", [{"managedBy": "example.com/other"}])
async def test_job_of_another_controller_is_left_alone(running: Running, spec: dict[str, Any]) -> None:
    running.cluster.apply_job(a_short_job(**spec))
    running.cluster.apply_job(a_manifest("ours"))
    await running.until(lambda: len(running.cluster.pods()) == 3)
    assert running.cluster.job("lm")["status"] == {}
    assert reads(running) == 0
