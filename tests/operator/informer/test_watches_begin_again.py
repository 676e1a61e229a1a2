"""A watch that ends begins again: the process goes on, and so do the other watches."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import kopf
import pytest
from aiohttp import web
from elastic_pytorch_operator.informer import kopf_watches
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.kopf_watches import kopf_settings, watch_cluster
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.spec.job import Job, JobKey
from elastic_pytorch_operator.spec.job_size import MAX_BYTES

from tests.operator import api_server as stand_in
from tests.operator.api_server import JOBS, ApiServer, write_kubeconfig
from tests.operator.builders import KEY, a_manifest

pytestmark = pytest.mark.process

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError"}
FAILED = {
    **STATUS,
    "code": 500,
    "message": "unable to decode an object in the watch stream: context canceled",
}
ERROR = json.dumps({"type": "ERROR", "object": FAILED}).encode() + b"\n"


class FailingServer(ApiServer):
    """Ends watches with an error.

    Attributes:
        ends: how many watches of a path are still to be ended.
        refused: the namespace that it refuses to show.
        unserved: a group that it does not serve, as while it starts.
        unauthorized: it refuses the account.
        watches: how many there have been, by path.
        jobs: what it has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: Counter[str] = Counter()
        self.refused = ""
        self.unserved = ""
        self.unauthorized = False
        self.watches: Counter[str] = Counter()
        self.jobs: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.strip("/")
        if self.refused and f"/namespaces/{self.refused}/" in path:
            self.watches["refused"] += 1
            return web.json_response({**STATUS, "code": 403, "reason": "Forbidden"}, status=403)
        if self.unauthorized:
            self.watches["unauthorized"] += 1
            return web.json_response({**STATUS, "code": 401, "reason": "Unauthorized"}, status=401)
        if path == self.unserved:
            self.watches["unserved"] += 1
            return web.json_response({"resources": []})
        if path == f"{JOBS}/elasticpytorchjobs" and not request.query.get("watch"):
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": self.jobs})
        if not request.query.get("watch"):
            return await super().answer(request)
        self.watched.add(path)
        self.watches[path] += 1
        stream = web.StreamResponse()
        await stream.prepare(request)
        while not self.ends[path]:
            await asyncio.sleep(0.02)
        self.ends[path] -= 1
        await stream.write(ERROR)
        return stream


@asynccontextmanager
async def watching(
    cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch, *namespaces: str
) -> AsyncIterator[tuple[FailingServer, "asyncio.Task[None]"]]:
    monkeypatch.setattr(stand_in, "ApiServer", FailingServer)
    async with stand_in.api_server() as (server, url):
        assert isinstance(server, FailingServer)
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(folder, url)))
        task = asyncio.create_task(watch_cluster(cache, lambda *_: None, namespaces))
        try:
            yield server, task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until(fulfilled: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not fulfilled():
            await asyncio.sleep(0.05)


async def test_watch_that_ends_with_an_error_begins_again_and_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache()
    async with watching(cache, tmp_path, monkeypatch) as (server, task):
        await until(lambda: len(server.watches) == 3)
        server.ends["api/v1/pods"] = 2
        bystander = asyncio.create_task(asyncio.sleep(3600), name="an agent's connection")
        await until(lambda: server.watches["api/v1/pods"] == 3)
        assert not task.done()
        assert not bystander.done(), (
            "kopf.operator would cancel all tasks of the event loop that are younger than itself"
        )
        bystander.cancel()
        assert server.watches["api/v1/nodes"] == server.watches[f"{JOBS}/elasticpytorchjobs"] == 1
        assert cache.watch_lag.missed(1e9), "a list has to show what was deleted meanwhile"


async def test_watch_that_ends_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(Cache(), tmp_path, monkeypatch) as (server, _):
        await until(lambda: len(server.watches) == 3)

        def names() -> Counter[str]:
            return Counter(
                task.get_name().partition(" of <")[0]
                for task in asyncio.all_tasks()
                if task.get_name()[:5] != "Task-"
            )

        await asyncio.sleep(0.5)  # what a watch has begun with has ended
        before = names()
        server.ends["api/v1/pods"] = 1
        await until(lambda: server.watches["api/v1/pods"] == 2)
        await until(lambda: names() <= before)


async def test_what_is_there_when_a_watch_begins_again_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache()
    async with watching(cache, tmp_path, monkeypatch) as (server, _):
        jobs = f"{JOBS}/elasticpytorchjobs"
        await until(lambda: server.watches[jobs] == 1)
        server.jobs = [a_manifest("large", image="x" * MAX_BYTES), a_manifest()]
        server.ends[jobs] = 1
        await until(lambda: len(cache.keys) == 2)
        job, large = cache.job(KEY), cache.job(JobKey("default", "large"))
        assert isinstance(job, Job)
        assert isinstance(large, Job)
        assert (job.problem, large.problem.split(":")[0]) == ("", "spec")
        assert "template" not in cache.job_manifest(JobKey("default", "large"))["spec"], (
            "it is dropped as it is read"
        )


async def test_namespace_is_watched_once_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(watch_lag=WatchLag(by_namespace=True))
    cache.replace_all([], [], [], 1.0, unavailable={"b"})
    async with watching(cache, tmp_path, monkeypatch, "a", "b") as (server, _):
        await until(lambda: server.watched >= {"api/v1/nodes", "api/v1/namespaces/a/pods"})
        assert not any("/b/" in path for path in server.watched | server.listed)
        cache.replace_all([], [], [], 2.0)
        await until(
            lambda: (
                server.watched
                >= {"api/v1/namespaces/b/pods", f"{JOBS}/namespaces/b/elasticpytorchjobs"}
            )
        )
        assert server.watches["api/v1/nodes"] == 1, "nodes belong to no namespace"


async def test_namespace_whose_watches_are_refused_is_not_asked_again_until_a_list_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick_settings() -> kopf.OperatorSettings:
        settings = kopf_settings()
        settings.networking.error_backoffs = [0.05]
        return settings

    monkeypatch.setattr(kopf_watches, "kopf_settings", quick_settings)
    cache = Cache(watch_lag=WatchLag(by_namespace=True))
    async with watching(cache, tmp_path, monkeypatch, "a", "b") as (server, _):
        server.refused = "b"
        await until(
            lambda: cache.unavailable == {"b"} and server.watches["api/v1/namespaces/a/pods"] == 1
        )
        await asyncio.sleep(2 * kopf_watches.MIN_PAUSE_SECONDS)
        asked = server.watches["refused"]
        await asyncio.sleep(2 * kopf_watches.MIN_PAUSE_SECONDS)
        assert server.watches["refused"] == asked
        assert cache.watch_lag.failing(time.monotonic()) == {"b"}
        server.refused = ""
        cache.replace_all([], [], [], 2.0)
        await until(lambda: server.watches["api/v1/namespaces/b/pods"] == 1)
        assert server.watches["api/v1/namespaces/a/pods"] == server.watches["api/v1/nodes"] == 1


async def test_kind_that_is_not_served_yet_is_watched_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = Cache()
    async with watching(cache, tmp_path, monkeypatch) as (server, _):
        server.unserved = JOBS
        await until(lambda: server.watches["unserved"] > 0)
        server.unserved = ""
        await until(lambda: server.watches[f"{JOBS}/elasticpytorchjobs"] == 1)
    assert (
        "the API server does not serve elasticpytorchjobs of elasticpytorch.dev/v1alpha1"
        in caplog.text
    )


async def test_account_that_is_refused_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(Cache(), tmp_path, monkeypatch) as (server, _):
        await until(lambda: len(server.watches) == 3)
        server.unauthorized, server.ends["api/v1/pods"] = True, 1
        await until(lambda: server.watches["unauthorized"] > 0)
        await asyncio.sleep(0.5 * kopf_watches.MIN_PAUSE_SECONDS)
        assert server.watches["unauthorized"] < 10
        server.unauthorized = False
        await until(lambda: server.watches["api/v1/pods"] == 2)
