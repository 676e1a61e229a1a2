"""Replays a trace to a job on the kind cluster."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_local.faults import engine
from elastic_pytorch_local.faults.driver import BROKEN, Object
from elastic_pytorch_local.faults.engine import NotUndone, Target, alone, made
from elastic_pytorch_local.faults.watcher import background
from measure.api import ApiError, jobs_path, pods_path
from measure.cluster import ClusterDriver
from measure.commands import CommandFailed
from measure.recorded_job import Told, open_to_all

from replay.jobs import SIZE, Job, manifest
from replay.restart_all import ATTEMPT, RestartAll
from replay.run import Run, members, read_lines
from replay.traces import LOSS, Event, Trace, compression, draw

TROUBLE = (*BROKEN, *engine.TROUBLE, NotUndone, RuntimeError)
# GKE's, with 30 s of notice: a worker without a replacement leaves after half of that. The node of the trace goes earlier.
NOTICE = "cloud.google.com/impending-node-termination"
NOTICE_SECONDS = 12.0
START_SECONDS = 180.0
VICTIM_SECONDS = 60.0
GONE_SECONDS = 120.0
LATELY_SECONDS = 1.5  # the slowest step takes 0.6 s
QUIET_STEPS = 25
LOOK_SECONDS = 0.2


class Player:
    """Makes the jobs in one namespace, whose folder all nodes have, and the events."""

    def __init__(self, driver: ClusterDriver, folder: Path, nodes: list[str], say: Callable[[str], None]) -> None:
        self._driver, self._folder, self._nodes, self._say = driver, folder, nodes, say

    async def heal(self) -> None:
        """Lets new pods start on all nodes again."""
        for node in self._nodes:
            await self._come_back(node)

    async def play(self, trace: Trace, job: Job, *, seed: int, seconds: float, commit: str) -> Run:
        factor = compression(trace, seconds)
        file = self._folder / f"{job.name}.jsonl"
        file.unlink(missing_ok=True)
        open_to_all(self._folder / job.name, exist_ok=True)
        began, events, error = time.time(), list[float](), ""
        try:
            async with self._training(job, factor):
                await self._whole(job, file)
                began = time.time()
                for event in draw(trace, seed, seconds):
                    await asyncio.sleep(began + event.at - time.time())
                    target = await self._target(event, job, file)
                    events.append(time.time())
                    self._say(f"    {target.what}")
                    async with made(target, self._say):
                        await asyncio.sleep(event.away_seconds)
                await asyncio.sleep(began + seconds - time.time())
                ended = time.time()
        except TROUBLE as trouble:
            error, ended = f"{type(trouble).__name__}: {trouble}", time.time()
        return Run(trace.name, job.name, seed, factor, commit, began, ended, *read_lines(Told(file).new()), events, error)

    @asynccontextmanager
    async def _training(self, job: Job, factor: float) -> AsyncIterator[None]:
        """The job, which is there meanwhile; without it its pods are gone."""
        runs = list[Coroutine[Any, Any, None]]()
        if job.operated:
            await self._driver.create_job(manifest(job, factor, self._folder.name))
        else:
            runs.append(RestartAll(self._driver.api, self._driver.namespace, job, factor).run())
        try:
            async with background(*runs):
                yield
        finally:
            await self._remove(job)

    async def _remove(self, job: Job) -> None:
        if job.operated:
            await self._driver.delete_job(job.name)
            return
        path = pods_path(self._driver.namespace)
        await self._driver.api.ask("DELETE", f"{path}?labelSelector={ATTEMPT}")
        async with asyncio.timeout(GONE_SECONDS):
            while await self._pods(job):  # noqa: ASYNC110  it is asked for
                await asyncio.sleep(LOOK_SECONDS)

    async def _whole(self, job: Job, file: Path) -> None:
        """Waits until the asked number of workers has trained for a while, and the spares are ready."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    lines = Told(file).new()
                    steps = [line for line in lines if line["what"] == "step" and line["RANK"] == 0]
                    lately = members(lines, time.time() - LATELY_SECONDS)
                    spares = 0 if not job.spares else await self._ready_spares(job)
                    if len(steps) >= QUIET_STEPS and list(lately.values()) == [SIZE] * SIZE and spares == job.spares:
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise RuntimeError(f"{job.name} did not train with {SIZE} workers in {START_SECONDS:.0f} s") from None

    async def _ready_spares(self, job: Job) -> int:
        return view_job(await self._driver.api.ask("GET", jobs_path(self._driver.namespace, job.name))).ready_spares

    async def _target(self, event: Event, job: Job, file: Path) -> Target:
        """A node that goes and comes back: without notice its worker is killed; with it, what has not left by the end of the notice."""
        pod = await self._victim(event, job, file)
        node, name = str(pod["spec"]["nodeName"]), str(pod["metadata"]["name"])

        async def lose() -> None:
            await self._driver.cordon_node(node)
            await self._kill(pod)

        async def reclaim() -> None:
            await self._announce(node, job)
            await asyncio.sleep(NOTICE_SECONDS)
            for left in on_node(await self._pods(job), node):
                self._say(f"    {left['metadata']['name']} was still on {node}, and is killed")
                await self._kill(left)

        what = f"{name} on {node} is killed" if event.kind == LOSS else f"{node} with {name} announces its end"
        return Target(what, lose if event.kind == LOSS else reclaim, lambda: self._come_back(node), node=node)

    async def _victim(self, event: Event, job: Job, file: Path) -> Any:
        try:
            async with asyncio.timeout(VICTIM_SECONDS):
                while True:
                    lately = members(Told(file).new(), time.time() - LATELY_SECONDS)
                    if found := choose(await self._pods(job), lately, event.pick):
                        return found
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise RuntimeError(f"no worker of {job.name} ran for {VICTIM_SECONDS:.0f} s") from None

    async def _pods(self, job: Job) -> list[Object]:
        if job.operated:
            return await self._driver.pods_of(job.name)
        path = pods_path(self._driver.namespace)
        return list((await self._driver.api.ask("GET", f"{path}?labelSelector={ATTEMPT}"))["items"])

    async def _announce(self, node: str, job: Job) -> None:
        """Announces a node's end: to the operator by a taint, to others as a termination handler does, by a drain."""
        if job.operated:
            await self._driver.commands.kubectl("taint", "node", node, f"{NOTICE}=:NoSchedule", "--overwrite")
            return
        await self._driver.cordon_node(node)
        for pod in on_node(await self._pods(job), node):
            name = pod["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            with suppress(ApiError):
                await self._driver.api.ask("POST", f"{pods_path(self._driver.namespace, name)}/eviction", eviction)

    async def _kill(self, pod: Mapping[str, Any]) -> None:
        """Kills all processes of a worker, without Kubernetes; nothing if it has just ended."""
        with suppress(CommandFailed):
            await self._driver.kill_pod(pod)

    async def _come_back(self, node: str) -> None:
        await self._driver.uncordon_node(node)
        with suppress(CommandFailed):  # it is not there
            await self._driver.commands.kubectl("taint", "node", node, f"{NOTICE}-")


def choose(pods: Sequence[Mapping[str, Any]], trained: Collection[str], pick: int) -> Mapping[str, Any] | None:
    """The pod whose node goes: of a worker that trains, if there is one, and alone on its node, if one is.

    Args:
        trained: the workers that have lately taken a step.
    """
    running = sorted((pod for pod in pods if _runs(pod)), key=lambda pod: str(pod["metadata"]["name"]))
    training = [pod for pod in running if pod["metadata"]["name"] in trained] or running
    lone = alone({pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in training})
    found = [pod for pod in training if pod["metadata"]["name"] in lone] or training
    return found[pick % len(found)] if found else None


def on_node(pods: Sequence[Mapping[str, Any]], node: str) -> list[Mapping[str, Any]]:
    return [pod for pod in pods if _runs(pod, leaving=True) and pod["spec"]["nodeName"] == node]


def _runs(pod: Mapping[str, Any], *, leaving: bool = False) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and (leaving or "deletionTimestamp" not in pod["metadata"])
