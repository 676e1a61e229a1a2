"""The controller on a cluster in memory: what it writes, and what it does when the API server refuses or fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from elastic_pytorch_operator import names
from elastic_pytorch_operator.conditions import find_condition
from elastic_pytorch_operator.controller import Controller
from elastic_pytorch_operator.execute import merge_patch
from elastic_pytorch_operator.fake_cluster import FakeCluster
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.local import feed
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue
from operator_builders import a_manifest


@dataclass
class Running:
    cluster: FakeCluster
    roster: Roster

    async def until(self, fulfilled: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not fulfilled():
                await asyncio.sleep(0.01)

    def condition(self, type_: str) -> str:
        found = find_condition(self.cluster.job("lm").get("status", {}), type_)
        return f"{found['reason']}: {found['message']}" if found else ""

    def indices(self) -> list[str]:
        return sorted(pod["metadata"]["labels"][names.LABEL_WORKER_INDEX] for pod in self.cluster.pods())


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    cluster, store, roster = FakeCluster(), Store(), Roster()
    queue: WorkQueue[JobKey] = WorkQueue()
    controller = Controller(cluster, store, roster, queue, "http://operator")
    cluster.watch(lambda kind, change, found: feed(store, queue.add, kind, change, found))
    await controller.prime()
    working = asyncio.create_task(controller.run())
    yield Running(cluster, roster)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_makes_a_service_and_pods_once(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: running.indices() == ["0", "1", "2"])
    running.cluster.apply_job(a_manifest())
    await asyncio.sleep(0.2)
    assert running.indices() == ["0", "1", "2"]
    assert running.cluster.calls.count("create_service") == 1


async def test_follows_scale_and_deletion(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: len(running.indices()) == 3)
    running.cluster.scale_job("lm", 4)
    await running.until(lambda: running.indices() == ["0", "1", "2", "3"])
    running.cluster.remove_job("lm")
    assert len(await running.cluster.list_jobs()) == 0


async def test_refused_pod_is_a_condition_and_is_not_asked_for_again_and_again(running: Running) -> None:
    running.cluster.fail_next("create_pod", 403, 'pods "lm" is forbidden: exceeded quota')
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: "exceeded quota" in running.condition("Running"))
    assert running.cluster.calls.count("create_pod") == 1


async def test_template_that_makes_no_pod_fails_the_job(running: Running) -> None:
    running.cluster.fail_next("create_pod", 422, 'Pod "lm" is invalid: spec.containers[0].image: Required value')
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: "spec.containers[0].image" in running.condition("Failed"))
    assert running.indices() == []
    assert running.cluster.job("lm")["status"]["state"] == "Failed"


async def test_job_that_cannot_be_read_says_so_once(running: Running) -> None:
    running.cluster.apply_job(a_manifest(minimum=9))
    await running.until(lambda: running.condition("Failed").startswith("InvalidSpec: spec.minReplicas"))
    await asyncio.sleep(0.1)
    assert running.cluster.calls.count("patch_job_status") == 1


async def test_job_that_has_begun_or_ended_is_not_failed_by_a_spec_that_cannot_be_read(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: bool(running.condition("Running")))
    await running.cluster.patch_job_status(
        "default", "lm", {"round": 4}, running.cluster.job("lm")["metadata"]["resourceVersion"]
    )
    running.cluster.apply_job(a_manifest(minimum=9))
    await running.until(lambda: running.condition("Degraded").startswith("InvalidSpec: spec.minReplicas"))
    assert "Running" in [c["type"] for c in running.cluster.job("lm")["status"]["conditions"]]
    assert not running.condition("Failed")

    complete = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    await running.cluster.patch_job_status("default", "lm", complete, running.cluster.job("lm")["metadata"]["resourceVersion"])
    running.cluster.apply_job(a_manifest("kueues", minimum=9, managedBy="kueue"))
    await asyncio.sleep(0.2)
    assert running.cluster.job("lm")["status"]["conditions"] == complete["conditions"]
    assert running.cluster.job("kueues")["status"] == {}


async def test_refused_service_holds_nothing_up(running: Running) -> None:
    running.cluster.fail_next("create_service", 403, 'services "lm" is forbidden: exceeded quota: services=1')
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: running.indices() == ["0", "1", "2"] and "exceeded quota" in running.condition("Running"))
    assert running.cluster.calls.count("create_service") == 1


async def test_refused_service_is_not_asked_for_again_and_again(running: Running) -> None:
    for _ in range(50):
        running.cluster.fail_next("create_service", 403, 'services "lm" is forbidden: exceeded quota: services=1')
    running.cluster.apply_job(a_manifest(rendezvous={"backend": "c10d"}))
    await running.until(lambda: "create_service" in running.cluster.calls)
    await asyncio.sleep(1)
    assert running.cluster.calls.count("create_service") == 1


@pytest.mark.parametrize("verb", ["create_service", "create_pod", "patch_job_status", "create_event"])
async def test_failing_api_server_is_asked_again(running: Running, verb: str) -> None:
    for _ in range(2):
        running.cluster.fail_next(verb, 500)
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: running.indices() == ["0", "1", "2"] and bool(running.condition("Running")))


def test_merge_patch_removes_what_is_no_longer_there() -> None:
    old = {"progress": {"step": 1, "loss": "2"}, "rootCause": {"signal": "SIGKILL"}, "workers": [1]}
    new = {"progress": {"step": 2}, "workers": [], "round": 1}
    assert merge_patch(old, new) == {"progress": {"step": 2, "loss": None}, "rootCause": None, "workers": [], "round": 1}
