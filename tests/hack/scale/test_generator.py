"""The load generator as a whole: it gets its pods and their tokens from an API server."""

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.runtime.replica import Replica
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey
from elastic_pytorch_operator.tls.secret import SECRET_NAME
from scale.generator import Api, Generator
from scale.observations import Observations

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import add_object
from tests.ports import free_port

pytestmark = pytest.mark.process


class ApiServer:
    """Lists and watches the pods of a cluster in memory, and issues tokens for them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self.watches = cluster, list[asyncio.Queue[dict[str, Any]]]()
        self.bound: list[dict[str, Any]] = []  # to which pods tokens were
        cluster.watch(self._on_change)

    def _on_change(self, kind: str, change: str, pod: dict[str, Any]) -> None:
        if kind == "Pod":
            for watch in self.watches:
                watch.put_nowait({"type": change, "object": pod})

    async def pods(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer admin"
        if "watch" not in request.query:
            return web.json_response(
                {"metadata": {"resourceVersion": "1"}, "items": self._cluster.pods()}
            )
        self.watches.append(changes := asyncio.Queue())
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(json.dumps(await changes.get()).encode() + b"\n")

    async def token(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        self.bound.append(spec["boundObjectRef"])
        assert spec["audiences"] == ["elastic-pytorch-operator"]
        token = self._cluster.issue_token("default", spec["boundObjectRef"]["name"])
        return web.json_response({"status": {"token": token}}, status=201)


class Kubelet:
    """Runs pods that are bound, and deletes them at once."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self._addresses = cluster, itertools.count(1)
        cluster.watch(self._on_change)

    def lose(self, name: str) -> None:
        self._cluster.begin_deletion("default", name)

    def _on_change(self, kind: str, change: str, pod: dict[str, Any]) -> None:
        if kind == "Pod" and change == "MODIFIED" and pod["spec"].get("nodeName"):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            if pod["metadata"].get("deletionTimestamp"):
                asyncio.get_running_loop().call_soon(self._cluster.finish_deletion, namespace, name)
            elif not pod["status"].get("podIP"):
                running = [{"name": "pytorch", "state": {"running": {}}}]
                status = {
                    "phase": "Running",
                    "podIP": f"127.2.0.{next(self._addresses)}",
                    "containerStatuses": running,
                }
                asyncio.get_running_loop().call_soon(
                    self._cluster.set_pod_status, namespace, name, status
                )


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not reached():
            await asyncio.sleep(0.02)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster, port, stop = FakeCluster(), free_port(), asyncio.Event()

    async def watch(store: Cache, request_work: Callable[[Iterable[JobKey]], None]) -> None:
        def watch(kind: str, change: str, manifest: dict[str, Any]) -> None:
            request_work(store.observe_change(kind, change, manifest, time.monotonic()))

        cluster.watch(watch)
        await asyncio.Event().wait()

    settings = ReplicaSettings(f"https://localhost:{port}", "127.0.0.1", port, free_port())
    add_object(cluster, "Secret", settings.namespace, SECRET_NAME)
    replica = asyncio.create_task(Replica(cluster, settings, watch).run(stop))
    yield cluster
    stop.set()
    await replica


@pytest.fixture
async def api(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ApiServer]:
    monkeypatch.setattr("scale.generator.IMPORT_SECONDS", 0.1)
    api, app = ApiServer(cluster), web.Application()
    app.add_routes([web.get("/api/v1/namespaces/default/pods", api.pods)])
    app.add_routes(
        [web.post("/api/v1/namespaces/default/serviceaccounts/default/token", api.token)]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "token").write_text("admin\n")
    place = Api(f"http://127.0.0.1:{runner.addresses[0][1]}", tmp_path / "token")
    generator = asyncio.create_task(Generator(place, "default").run())
    await until(lambda: api.watches)
    yield api
    generator.cancel()
    await asyncio.wait([generator])
    await runner.cleanup()


async def test_generator_speaks_for_each_pod_and_says_what_all_agents_of_a_job_heard(
    cluster: FakeCluster, api: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    observed, kubelet = Observations(), Kubelet(cluster)

    def sizes() -> list[int]:
        for line in capsys.readouterr().out.splitlines():
            observed.read(line)
        return [told.size for told in observed.told["lm"]]

    cluster.apply_job(a_manifest())
    await until(lambda: sizes()[-1:] == [3] and observed.count("running") == 3)
    os.kill(os.getpid(), signal.SIGUSR1)
    await until(lambda: sizes() and observed.heard.keys() == {"lm"})
    before = len(sizes())
    kubelet.lose(victim := cluster.pods()[0]["metadata"]["name"])
    await until(lambda: sizes()[before:] == [2, 3])
    # The next tick.
    await until(
        lambda: sizes() and (observed.count("created"), observed.count("deleted")) == (4, 1)
    )
    assert not observed.broken
    assert {pod["name"] for pod in api.bound} == {
        pod["metadata"]["name"] for pod in cluster.pods()
    } | {victim}
