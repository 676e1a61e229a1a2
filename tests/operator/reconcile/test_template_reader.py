from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.reconcile import template_reader

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster
from tests.operator.running_controller import Running, RunningController
from tests.situations import situations

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
    return running.cluster.calls.count("get ClusterElasticPyTorchJobTemplate")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_reader, "MISSING_SECONDS", 0.1)


@asynccontextmanager
async def next_leader(running: Running) -> AsyncIterator[RunningController[FaultyCluster]]:
    """Another operator, which begins to lead with the API server alone."""
    running.watching = False
    leader = RunningController(running.cluster, began=datetime.now(UTC))
    async with leader.runs():
        yield leader


async def begin_with(running: Running, template: Manifest, **spec: Any) -> str:
    """A job with three running pods by a template; returns the template's UID."""
    uid: str = running.cluster.make_template(template)["metadata"]["uid"]
    running.cluster.apply_job(a_short_job(**spec))
    await running.until(lambda: len(images(running)) == 3)
    running.start_pods()
    await running.until(lambda: running.condition("Running").startswith("RoundRunning"))
    return uid


async def test_pods_are_made_from_the_template_of_which_the_status_has_no_contents(
    running: Running,
) -> None:
    uid = await begin_with(running, a_template())
    assert set(images(running)) == {"torch"}
    assert running.cluster.pods()[0]["spec"]["containers"][0]["args"] == ["train.py"]
    assert kept(running) == {"name": "gpu", "uid": uid}
    assert reads(running) == 1


@situations("made_again", {"made again": True, "deleted": False})
async def test_running_job_does_not_notice_what_becomes_of_its_template(
    running: Running, made_again: bool
) -> None:
    uid = await begin_with(running, a_template())
    running.cluster.remove_template("gpu")
    if made_again:
        running.cluster.make_template(a_template("newer", prepare={}))
    running.cluster.scale_job("lm", 4)
    await running.until(lambda: len(images(running)) == 4)
    assert set(images(running)) == {"torch"}
    assert (kept(running)["uid"], reads(running)) == (uid, 1)


async def test_next_leader_reads_the_template_once_for_all_its_jobs(running: Running) -> None:
    await begin_with(running, a_template())
    running.cluster.apply_job(a_short_job(name="other"))
    await running.until(lambda: len(images(running)) == 6)
    before = reads(running)
    async with next_leader(running):
        running.cluster.scale_job("lm", 4)
        running.cluster.scale_job("other", 4)
        await running.until(lambda: images(running) == ["torch"] * 8)
    assert (reads(running), running.cluster.calls.count("get ControllerRevision")) == (before, 1)


@situations("made_again", {"made again": True, "deleted": False})
async def test_job_goes_on_under_the_next_leader_with_what_it_began_with(
    running: Running, made_again: bool
) -> None:
    uid = await begin_with(running, a_template())
    running.cluster.remove_template("gpu")
    if made_again:
        running.cluster.make_template(a_template("newer"))
    async with next_leader(running):
        running.cluster.scale_job("lm", 4)
        await running.until(lambda: images(running) == ["torch"] * 4)
        running.lose_pod()
        await running.until(lambda: images(running) == ["torch"] * 3)
        await running.until(lambda: images(running) == ["torch"] * 4)
    assert kept(running)["uid"] == uid
    assert "TemplateMissing" not in running.condition("Degraded")


async def test_job_without_what_it_has_of_its_template_runs_on_and_says_so(
    running: Running,
) -> None:
    await begin_with(running, a_template())
    pods = running.cluster.pods()
    running.cluster.fail_next("get ControllerRevision", 404, "not found")
    async with next_leader(running):
        words = f"TemplateMissing: {KIND} gpu cannot be read, and is looked for again: not found"
        await running.until(lambda: running.condition("Degraded") == words)
        assert running.condition("Running").startswith("RoundRunning")
        assert running.cluster.pods() == pods


async def test_resumed_job_has_the_template_that_has_the_name_then(running: Running) -> None:
    running.cluster.make_template(a_template(failurePolicy={"maxFailures": 7}))
    running.cluster.apply_job(a_short_job(suspend=True))
    await running.until(lambda: running.condition("Suspended").startswith("JobSuspended"))
    uid = running.cluster.make_template(a_template("newer"))["metadata"]["uid"]
    assert kept(running)["uid"] != uid
    running.cluster.apply_job(a_short_job(suspend=False))
    await running.until(lambda: images(running) == ["newer"] * 3)
    assert kept(running) == {"name": "gpu", "uid": uid}
    await running.until(
        lambda: running.condition("Suspended").startswith("JobResumed: the job is not suspended")
    )
    assert running.events("JobResumed")
    assert reads(running) == 2


@pytest.mark.usefixtures("impatient")
async def test_job_waits_for_a_template_that_is_missing_and_begins_once_it_is_there(
    running: Running,
) -> None:
    running.cluster.apply_job(a_short_job())
    words = (
        f"TemplateMissing: {KIND} gpu cannot be read, and is looked for again: "
        f'{KIND} "gpu" not found'
    )
    await running.until(lambda: running.condition("Running") == words)
    written = running.cluster.calls.count("patch ElasticPyTorchJob/status")
    read = reads(running)
    await running.until(lambda: reads(running) >= read + 2)
    assert running.cluster.calls.count("patch ElasticPyTorchJob/status") == written, (
        "the same is not told again"
    )
    assert running.cluster.job("lm")["status"]["state"] == "Pending"
    running.cluster.make_template(a_template())
    await running.until(lambda: images(running) == ["torch"] * 3)


async def test_suspended_job_without_its_template_is_suspended_and_may_name_another(
    running: Running,
) -> None:
    running.cluster.apply_job(a_short_job("other", suspend=True))
    await running.until(lambda: running.condition("Suspended").startswith("JobSuspended"))
    assert running.condition("Running").startswith("TemplateMissing")
    running.cluster.make_template(a_template())
    running.cluster.apply_job(a_short_job(suspend=True))
    await running.until(lambda: kept(running).get("name") == "gpu")
    await running.until(lambda: running.condition("Running").startswith("JobSuspended"))


@pytest.mark.usefixtures("impatient")
async def test_job_waits_for_a_template_with_which_it_is_valid(running: Running) -> None:
    running.cluster.make_template(a_template(progressDeadlineSeconds=60))
    running.cluster.apply_job(a_short_job(rendezvous={"backend": "c10d"}))
    await running.until(lambda: running.condition("Running").startswith("TemplateMissing"))
    assert "(found: progressDeadlineSeconds)" in running.condition("Running")
    assert f"(with {KIND} gpu)" in running.condition("Running")
    assert not running.condition("Failed")
    running.cluster.make_template(a_template())
    await running.until(lambda: bool(images(running)))


async def test_trouble_with_the_api_server_is_no_missing_template(running: Running) -> None:
    running.cluster.make_template(a_template())
    running.cluster.fail_next("get ClusterElasticPyTorchJobTemplate", 500)
    running.cluster.apply_job(a_short_job())
    await running.until(lambda: len(images(running)) == 3)
    assert reads(running) == 2


async def test_permission_that_the_operator_lacks_is_told(running: Running) -> None:
    running.cluster.fail_next("get ClusterElasticPyTorchJobTemplate", 403, "forbidden")
    running.cluster.apply_job(a_short_job())
    await running.until(lambda: running.condition("Running").startswith("TemplateMissing"))
    assert running.condition("Running").endswith("looked for again: forbidden")


async def test_job_of_another_controller_is_left_alone(running: Running) -> None:
    running.cluster.apply_job(a_short_job(managedBy="example.com/other"))
    running.cluster.apply_job(a_manifest("ours"))
    await running.until(lambda: len(running.cluster.pods()) == 3)
    assert running.cluster.job("lm")["status"] == {}
    assert reads(running) == 0
