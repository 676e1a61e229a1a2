"""Replays a trace to a job on the kind cluster."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench.nodes import Nodes
from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import view_job
from measure.api import Api, ApiError, jobs_path, pods_path
from measure.commands import CommandFailed, Commands
from measure.recorded_job import Told, open_to_all
from measure.watcher import BROKEN, background

from replay.jobs import SIZE, Job, manifest
from replay.restart_all import RestartAll, of_job
from replay.run import Made, Run, members, read_lines
from replay.traces import LOSS, Event, Trace, compression, draw
from replay.victims import choose, on_node

TROUBLE = (*BROKEN, ApiError, CommandFailed, RuntimeError, OSError)
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

    def __init__(self, api: Api, commands: Commands, folder: Path, workers: list[str], say: Callable[[str], None]) -> None:
        self._api, self._commands, self._folder, self._workers, self._say = api, commands, folder, workers, say
        self._namespace, self._nodes = folder.name, Nodes(api, commands)

    async def heal(self) -> None:
        """Lets new pods start on all nodes again."""
        for node in self._workers:
            await self._come_back(node)

    async def play(self, trace: Trace, job: Job, *, seed: int, seconds: float, commit: str) -> Run:
        """Replays a trace to a job, and returns what was seen."""
        factor = compression(trace, seconds)
        file = self._folder / f"{job.name}.jsonl"
        file.unlink(missing_ok=True)
        open_to_all(self._folder / job.name, exist_ok=True)
        began, made, error = time.time(), list[Made](), ""
        try:
            async with self._training(job, factor):
                await self._whole(job, file)
                began = time.time()
                for event in draw(trace, seed, seconds):
                    await asyncio.sleep(began + event.at - time.time())
                    await self._make(event, job, file, made)
                await asyncio.sleep(began + seconds - time.time())
                ended = time.time()
        except TROUBLE as trouble:
            error, ended = f"{type(trouble).__name__}: {trouble}", time.time()
        lines = Told(file).new()
        return Run(trace.name, job.name, seed, factor, commit, began, ended, *read_lines(lines), made, error)

    @asynccontextmanager
    async def _training(self, job: Job, factor: float) -> AsyncIterator[None]:
        """The job, which is there meanwhile; without it its pods are gone."""
        runs = list[Coroutine[Any, Any, None]]()
        if job.operated:
            await self._api.ask("POST", jobs_path(self._namespace), manifest(job, factor, self._namespace))
        else:
            runs.append(RestartAll(self._api, self._namespace, job, factor).run())
        try:
            async with background(*runs):
                yield
        finally:
            await self._remove(job)

    async def _remove(self, job: Job) -> None:
        if job.operated:
            await self._api.ask("DELETE", jobs_path(self._namespace, job.name))
        else:
            await self._api.ask("DELETE", f"{pods_path(self._namespace)}?labelSelector={of_job(job)}")
        async with asyncio.timeout(GONE_SECONDS):
            while True:
                if not (await self._api.ask("GET", pods_path(self._namespace)))["items"]:
                    return
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
        return view_job(await self._api.ask("GET", jobs_path(self._namespace, job.name))).ready_spares

    async def _make(self, event: Event, job: Job, file: Path, made: list[Made]) -> None:
        """Has a node go and come back."""
        pod = await self._victim(event, job, file)
        node, name = str(pod["spec"]["nodeName"]), str(pod["metadata"]["name"])
        try:
            if event.kind == LOSS:
                await self._commands.kubectl("cordon", node)
                made.append(Made(time.time(), event.kind, f"{name} on {node} is killed"))
                self._say(f"    {made[-1].what}")
                await self._kill(pod)
            else:
                made.append(Made(time.time(), event.kind, f"{node} with {name} announces its end"))
                self._say(f"    {made[-1].what}")
                await self._announce(node, job)
                await asyncio.sleep(NOTICE_SECONDS)
                for left in on_node(await self._pods(job), node):
                    self._say(f"    {left['metadata']['name']} was still on {node}, and is killed")
                    await self._kill(left)
            await asyncio.sleep(event.away_seconds)
        finally:
            await self._come_back(node)

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

    async def _pods(self, job: Job) -> list[dict[str, Any]]:
        found = await self._api.ask("GET", f"{pods_path(self._namespace)}?labelSelector={of_job(job)}")
        return list(found["items"])

    async def _announce(self, node: str, job: Job) -> None:
        """Announces a node's end: to the operator by a taint, to others as a termination handler does, by a drain."""
        if job.operated:
            await self._commands.kubectl("taint", "node", node, f"{NOTICE}=:NoSchedule", "--overwrite")
            return
        await self._commands.kubectl("cordon", node)
        for pod in on_node(await self._pods(job), node):
            name = pod["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            with suppress(ApiError):
                await self._api.ask("POST", f"{pods_path(self._namespace, name)}/eviction", eviction)

    async def _kill(self, pod: Any) -> None:
        """Kills all processes of a worker, without Kubernetes; nothing if it has just ended."""
        states = pod["status"]["containerStatuses"]
        [status] = [state for state in states if state["name"] == names.TRAINING_CONTAINER]
        with suppress(CommandFailed):
            await self._nodes.kill_container(pod["spec"]["nodeName"], status["containerID"].partition("://")[2])

    async def _come_back(self, node: str) -> None:
        await self._commands.kubectl("uncordon", node)
        with suppress(CommandFailed):  # it is not there
            await self._commands.kubectl("taint", "node", node, f"{NOTICE}-")
