from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.faults.watcher import Waited, Watcher, background
from measure.api import Api, ApiError
from measure.cluster import ClusterDriver
from measure.commands import Commands

from tests.hack.stand_in_api import Server

PODS = "/api/v1/namespaces/ns/pods"
JOBS = "/apis/elasticpytorch.dev/v1alpha1/namespaces/ns/elasticpytorchjobs"
STEP = "1970-01-01T00:16:40.250Z step {}/800  loss 3.272  workers 3  86 ms/step"


def a_pod(name: str) -> dict[str, Any]:
    status = {"containerStatuses": [{"state": {"running": {}}}]}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": "n1"},
        "status": status,
    }


async def test_watcher_keeps_the_job_its_pods_and_what_is_new_in_their_logs(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.LOOK_SECONDS", 0.01)
    server.tell(
        JOBS,
        {"metadata": {"name": "char-lm"}, "spec": {"replicas": 3}, "status": {"state": "Running"}},
    )
    server.tell(PODS, a_pod("a"))
    server.lines[f"{PODS}/a/log"] = [STEP.format(21), STEP.format(22)]
    driver = ClusterDriver(api, Commands(Path("no-kubectl"), Path("no-kubeconfig")), "ns")
    watcher = Watcher(driver, "char-lm")
    async with background(watcher.run()):
        await watcher.until(lambda: watcher.log.steps()[1:], seconds=60, what="two steps")
        assert (watcher.job.wanted, watcher.job.state, watcher.deleted) == (3, "Running", False)
        # The log is read from its beginning again, and lines of any length or bytes hide none of
        # those behind them.
        server.lines[f"{PODS}/a/log"] += ["", "\udcff", "x" * 10_000_000, STEP.format(23)]
        await watcher.until(lambda: watcher.log.steps()[2:], seconds=60, what="another step")
        assert [step.number for step in watcher.log.steps()] == [21, 22, 23]
        server.tell(JOBS, {"metadata": {"name": "char-lm"}}, change="DELETED")
        server.tell(PODS, a_pod("a"), change="DELETED")
        await watcher.until(
            lambda: watcher.deleted and not watcher.pods, seconds=60, what="the end"
        )
        with pytest.raises(Waited, match="waited 0 s for a wonder"):
            await watcher.until(lambda: None, seconds=0.02, what="a wonder")
        server.tell(JOBS, {"status": {"workers": [{"rank": 0}]}})
        with pytest.raises(Waited, match=r"cannot see the job any more: .*KeyError"):
            await watcher.until(lambda: None, seconds=60, what="a wonder")
    await driver.delete_pod("gone", force=True)
    with pytest.raises(ApiError, match="no /api/v1/nodes/n2"):
        await api.ask("DELETE", "/api/v1/nodes/n2")
