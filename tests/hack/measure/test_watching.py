"""The watcher on a small API server, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from measure.api import Api, ApiError
from measure.kind_cluster import OPERATOR_NAMESPACE
from measure.records import PodCreated, Step
from measure.watcher import LEASES, Waited, Watcher

from tests.hack.stand_in_api import Server

PODS = "/api/v1/namespaces/ns/pods"
OPERATORS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
JOBS = "/apis/elasticpytorch.dev/v1alpha1/namespaces/ns/elasticpytorchjobs"
STEP = "1970-01-01T00:16:40.250Z step {}/800  loss 3.272  workers 3  86 ms/step"
CREATED = {"time": "1970-01-01T00:16:40.250Z", "message": "created pod", "job": "ns/char-lm", "pod": "a"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.watcher.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("measure.watcher.LOOK_SECONDS", 0.01)


@pytest.fixture
async def watcher(server: Server, api: Api) -> AsyncIterator[Watcher]:
    server.tell(JOBS, {"metadata": {"name": "char-lm"}, "spec": {"replicas": 3}, "status": {"state": "Running"}})
    server.tell(PODS, a_pod("a"))
    server.lines[f"{PODS}/a/log"] = [STEP.format(21), STEP.format(22)]
    server.tell(OPERATORS, a_pod("leader"), a_pod("standby"))
    server.tell(LEASES, {"spec": {"holderIdentity": "leader"}})
    server.lines[f"{OPERATORS}/leader/log"] = [f"1970-01-01T00:16:40.260Z {json.dumps(CREATED)}"]
    watcher = Watcher(api, "ns", "char-lm")
    watching = asyncio.create_task(watcher.run(operators=True))
    yield watcher
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def a_pod(name: str) -> dict[str, Any]:
    running = [{"state": {"running": {}}}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": "n1"},
        "status": {"containerStatuses": running},
    }


async def test_answers_are_objects_and_refusals_are_errors(server: Server, api: Api) -> None:
    server.lines["/api/v1/nodes/n1"] = ['{"kind": "Node"}']
    assert api.namespace == "ns"
    assert await api.ask("PATCH", "/api/v1/nodes/n1", {"spec": {}}) == {"kind": "Node"}
    assert server.asked == [("PATCH", "/api/v1/nodes/n1", ("application/merge-patch+json", {"spec": {}}))]
    with pytest.raises(ApiError, match="no /api/v1/nodes/n2") as refused:
        await api.ask("DELETE", "/api/v1/nodes/n2")
    assert refused.value.status == 404
    assert [line async for line in api.lines("/api/v1/nodes/n2")] == []


async def test_keeps_the_job_its_pods_and_what_the_logs_say(server: Server, watcher: Watcher) -> None:
    def seen() -> bool:
        timeline = watcher.timeline
        return watcher.job.wanted == 3 and len(timeline.every(Step)) == 2 and timeline.first(PodCreated) is not None

    await watcher.until(seen, seconds=10, what="the job and what the logs say")
    assert (watcher.job.state, watcher.deleted) == ("Running", False)
    leads = await watcher.until(lambda: list(watcher.leaders()), seconds=10, what="a leader")
    assert leads == ["leader"]
    asked = {path for _, path, _ in server.asked}
    workers = "elasticpytorch.dev/job-name=char-lm,elasticpytorch.dev/role=worker"
    assert f"{PODS}?watch=1&labelSelector={workers}" in asked
    assert f"{JOBS}?watch=1&fieldSelector=metadata.name=char-lm" in asked
    assert f"{PODS}/a/log?follow=true&timestamps=true" in asked
    assert f"{LEASES}?watch=1&fieldSelector=metadata.name=elastic-pytorch-operator" in asked


async def test_a_log_that_is_read_again_tells_only_what_is_new(server: Server, watcher: Watcher) -> None:
    await watcher.until(lambda: watcher.timeline.last(Step), seconds=10, what="a step")
    server.lines[f"{PODS}/a/log"].append(STEP.format(23))
    await watcher.until(lambda: watcher.timeline.every(Step)[2:], seconds=10, what="another step")
    assert [step.number for step in watcher.timeline.every(Step)] == [21, 22, 23]


async def test_line_of_any_length_or_bytes_hides_none_of_those_behind_it(server: Server, watcher: Watcher) -> None:
    server.lines[f"{PODS}/a/log"] += ["", "\udcff", "x" * 10_000_000, STEP.format(23)]
    await watcher.until(lambda: watcher.timeline.every(Step)[2:], seconds=60, what="the step behind it")
    assert [step.number for step in watcher.timeline.every(Step)] == [21, 22, 23]


async def test_sees_that_the_job_is_deleted_and_that_pods_are_gone(server: Server, watcher: Watcher) -> None:
    await watcher.until(lambda: watcher.pods, seconds=10, what="a pod")
    server.tell(JOBS, {"metadata": {"name": "char-lm"}}, change="DELETED")
    server.tell(PODS, a_pod("a"), change="DELETED")
    await watcher.until(lambda: watcher.deleted and not watcher.pods, seconds=10, what="the end")
    assert watcher.job.workers == ()


async def test_what_does_not_come_is_not_waited_for_forever(watcher: Watcher) -> None:
    with pytest.raises(Waited, match="waited 0 s for a wonder"):
        await watcher.until(lambda: None, seconds=0.02, what="a wonder")


async def test_says_why_nothing_is_seen_any_more(server: Server, watcher: Watcher) -> None:
    server.tell(JOBS, {"status": {"workers": [{"rank": 0}]}})
    with pytest.raises(Waited, match=r"cannot see the job any more: .*KeyError"):
        await watcher.until(lambda: None, seconds=10, what="a wonder")
