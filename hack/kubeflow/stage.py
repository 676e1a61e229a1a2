"""One job at a time in a namespace: made, hurt, and seen through what its processes tell."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from measure.api import Api, ApiError, pods_path
from measure.commands import CommandFailed, Commands
from measure.recorded_job import Told, open_to_all
from measure.watcher import Waited
from replay.run import Step, read_lines

from kubeflow.jobs import SIZE, Job, manifest, path
from kubeflow.losses import Kind, victim

START_SECONDS = 120.0
RECOVERY_SECONDS = 120.0
GONE_SECONDS = 60.0
LOOK_SECONDS = 0.2
QUIET_STEPS = 30  # between two losses: more than a checkpoint's interval
LOG_LINES = 60


class Record:
    """What the processes of a job have told in their file, read as it grows; of ranks other than 0 only their set-up."""

    def __init__(self, file: Path) -> None:
        self._told = Told(file)
        self._lines: list[Mapping[str, Any]] = []

    def lines(self) -> list[Mapping[str, Any]]:
        self._lines += [line for line in self._told.new() if not line.get("RANK")]
        return self._lines

    def steps(self) -> list[Step]:
        """The steps of rank 0 of each group."""
        return read_lines(self.lines())[0]

    def rank_0(self) -> str:
        """The pod whose process was rank 0 in the last step; empty: there was no step."""
        told = (line["worker"] for line in reversed(self.lines()) if line["what"] == "step")
        return str(next(told, ""))

    def torch(self) -> str:
        """The torch that the script has imported; empty: none has told yet."""
        return str(next((line["torch"] for line in self.lines() if "torch" in line), ""))


class Stage:
    """One job at a time; each object has a name of its own, as names of pods stay in DNS for a while."""

    def __init__(self, api: Api, commands: Commands, folder: Path, job: Job) -> None:
        self._api, self._commands, self._folder, self.job = api, commands, folder, job
        self._namespace, self._made = folder.name, 0
        self.record = Record(folder / "none")

    @property
    def name(self) -> str:
        """Of the object that there is."""
        return f"{self.job.name}-{self._made}"

    async def make(self) -> None:
        """Makes the job, or makes it again, and waits until all workers train."""
        await self.remove()
        self._made += 1
        open_to_all(self._folder / self.name)
        self.record = Record(self._folder / f"{self.name}.jsonl")
        await self._api.ask("POST", path(self.job, self._namespace), manifest(self.job, self.name, self._namespace))
        await self.train(SIZE, START_SECONDS)

    async def remove(self) -> None:
        """Removes the job and its pods; nothing if there is none."""
        if not self._made:
            return
        with suppress(ApiError):
            await self._api.ask("DELETE", path(self.job, self._namespace, self.name))
        async with asyncio.timeout(GONE_SECONDS):
            while pods := await self.pods():
                for pod in pods:
                    await self._delete(pod["metadata"]["name"], force=True)
                await asyncio.sleep(LOOK_SECONDS)

    async def train(self, size: int, seconds: float) -> None:
        """Waits until this number of workers have trained together for a quiet while."""
        await self._until(lambda: _quiet(self.record.steps(), size), seconds, f"{size} workers of {self.name} to train")

    async def hurt(self, kind: Kind) -> tuple[float, str]:
        """Does to the job what a kind of trial asks for; returns when, in seconds since the epoch, and to which pod."""
        if kind.grows:
            at = time.time()
            await self.scale(SIZE)
            return at, ""
        pod = victim(kind, self.job, await self.pods(), self.record.rank_0())
        at = time.time()
        await self._delete(pod, force=kind.force)
        return at, pod

    async def scale(self, size: int) -> None:
        await self._api.ask("PATCH", f"{path(self.job, self._namespace, self.name)}/scale", {"spec": {"replicas": size}})

    async def recovered(self, at: float) -> None:
        """Waits until a group that has formed since a moment has all workers."""

        def found() -> bool:
            steps = self.record.steps()
            last = next((step.group for step in reversed(steps) if step.at <= at), 0)
            return any(step.group > last and step.world == SIZE for step in reversed(steps) if step.at > at)

        await self._until(found, RECOVERY_SECONDS, f"{SIZE} workers of {self.name} to train again")

    async def restarts(self) -> int:
        """How often the kubelet has started a container again: it starts the next time only after a growing pause."""
        states = [state for pod in await self.pods() for state in pod.get("status", {}).get("containerStatuses") or ()]
        return sum(state.get("restartCount", 0) for state in states)

    async def pods(self) -> list[dict[str, Any]]:
        selector = f"labelSelector={self.job.selector}%3D{self.name}"
        return list((await self._api.ask("GET", f"{pods_path(self._namespace)}?{selector}"))["items"])

    async def logs(self) -> str:
        """What is needed to understand a failure."""
        of_pods = ("-n", self._namespace, "-l", f"{self.job.selector}={self.name}")
        tail = ("logs", "--prefix", f"--tail={LOG_LINES}", "--ignore-errors")
        operator = ("logs", "-n", "kubeflow", "deployment/training-operator", f"--tail={LOG_LINES}")
        asked = [("describe", "pods", *of_pods), (*tail, *of_pods), (*tail, "--previous", *of_pods)]
        told = []
        for command in [*asked, *([operator] if self.job.kubeflow else [])]:
            with suppress(CommandFailed):
                told.append(await self._commands.kubectl(*command))
        return "\n".join(told)

    async def _delete(self, pod: str, *, force: bool) -> None:
        """Does what `kubectl delete pod` does; by force with its options `--grace-period=0 --force`."""
        try:
            await self._api.ask("DELETE", pods_path(self._namespace, pod), {"gracePeriodSeconds": 0} if force else None)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _until(self, found: Callable[[], bool], seconds: float, what: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if found():
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            steps = self.record.steps()
            seen = (
                f"the last step was number {steps[-1].number}, of {steps[-1].world} workers" if steps else "there was no step"
            )
            pods = ", ".join(_describe(pod) for pod in await self.pods()) or "no pods"
            raise Waited(f"waited {seconds:.0f} s for {what}; {seen}; {pods}") from None


def _quiet(steps: list[Step], size: int) -> bool:
    last = steps[-QUIET_STEPS:]
    return len(last) == QUIET_STEPS and all((step.world, step.group) == (size, last[0].group) for step in last)


def _describe(pod: Mapping[str, Any]) -> str:
    status = pod.get("status", {})
    [state] = status.get("containerStatuses") or [{}]
    reasons = [how["reason"] for how in state.get("state", {}).values() if "reason" in how]
    restarts = [f"{state['restartCount']} restarts"] if state.get("restartCount") else []
    return f"{pod['metadata']['name']}: {', '.join([status.get('phase', 'unknown'), *reasons, *restarts])}"
