"""The watcher on a small API server, over HTTP."""

import json
from typing import Any

import pytest
from measure.api import Api, ApiError
from measure.kind_cluster import OPERATOR_NAMESPACE
from measure.records import PodCreated, Step
from measure.watcher import LEASES, Waited, Watcher, background

from tests.hack.stand_in_api import Server

PODS = "/api/v1/namespaces/ns/pods"
OPERATORS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
JOBS = "/apis/elasticpytorch.dev/v1alpha1/namespaces/ns/elasticpytorchjobs"
STEP = "1970-01-01T00:16:40.250Z step {}/800  loss 3.272  workers 3  86 ms/step"
CREATED = {"time": "1970-01-01T00:16:40.250Z", "message": "created pod", "job": "ns/char-lm", "pod": "a"}


def a_pod(name: str) -> dict[str, Any]:
    status = {"containerStatuses": [{"state": {"running": {}}}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"nodeName": "n1"}, "status": status}


async def test_watcher_keeps_the_job_its_pods_and_what_is_new_in_their_logs(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("measure.watcher.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("measure.watcher.LOOK_SECONDS", 0.01)
    server.tell(JOBS, {"metadata": {"name": "char-lm"}, "spec": {"replicas": 3}, "status": {"state": "Running"}})
    server.tell(PODS, a_pod("a"))
    server.lines[f"{PODS}/a/log"] = [STEP.format(21), STEP.format(22)]
    server.tell(OPERATORS, a_pod("leader"), a_pod("standby"))
    server.tell(LEASES, {"spec": {"holderIdentity": "leader"}})
    server.lines[f"{OPERATORS}/leader/log"] = [f"1970-01-01T00:16:40.260Z {json.dumps(CREATED)}"]
    watcher = Watcher(api, "ns", "char-lm")
    async with background(watcher.run(operators=True)):
        await watcher.until(lambda: watcher.timeline.every(Step)[1:], seconds=60, what="two steps")
        await watcher.until(lambda: watcher.timeline.first(PodCreated), seconds=60, what="what the operator says")
        assert await watcher.until(lambda: list(watcher.leaders()), seconds=60, what="a leader") == ["leader"]
        assert (watcher.job.wanted, watcher.job.state, watcher.deleted) == (3, "Running", False)
        # The log is read from its beginning again, and lines of any length or bytes hide none of those behind them.
        server.lines[f"{PODS}/a/log"] += ["", "\udcff", "x" * 10_000_000, STEP.format(23)]
        await watcher.until(lambda: watcher.timeline.every(Step)[2:], seconds=60, what="another step")
        assert [step.number for step in watcher.timeline.every(Step)] == [21, 22, 23]
        server.tell(JOBS, {"metadata": {"name": "char-lm"}}, change="DELETED")
        server.tell(PODS, a_pod("a"), change="DELETED")
        await watcher.until(lambda: watcher.deleted and not watcher.pods, seconds=60, what="the end")
        with pytest.raises(Waited, match="waited 0 s for a wonder"):
            await watcher.until(lambda: None, seconds=0.02, what="a wonder")
        server.tell(JOBS, {"status": {"workers": [{"rank": 0}]}})
        with pytest.raises(Waited, match=r"cannot see the job any more: .*KeyError"):
            await watcher.until(lambda: None, seconds=60, what="a wonder")
    with pytest.raises(ApiError, match="no /api/v1/nodes/n2"):
        await api.ask("DELETE", "/api/v1/nodes/n2")
