"""A driver with a cluster in memory that runs one job quickly."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from elastic_pytorch_local.faults.driver import Change, Driver

STEP_SECONDS = 0.002
POD_START_SECONDS = 0.02
CHECKPOINT_EVERY = 20
PID = 18
MAX_REPLICAS = 4


class CountingCluster(Driver):
    """Trains by counting.

    A pod that is killed costs the steps since the last checkpoint; its replacement takes a while.

    Args:
        fail_at: the step at which the job fails.
        stuck_after: the round after which no further one forms.
        log: `whole`; `torn`, as a group's last line has no end; or `silent`, as nothing is written.
    """

    def __init__(
        self, *, fail_at: int | None = None, stuck_after: int | None = None, log: str = "whole"
    ) -> None:
        self.namespace = "default"
        self.commands: list[str] = []
        self.pods: list[str] = []
        self._fail_at, self._stuck_after, self._log = fail_at, stuck_after, log
        self._interruptions: list[dict[str, Any]] = []
        self._names = itertools.count()
        self._wanted = self._round = self._step = self._total = 0
        self._state = "Pending"
        self._members: list[str] = []
        self._logs: dict[str, list[str]] = {}
        self._training: asyncio.Task[None] | None = None
        self._starting = set[asyncio.Task[None]]()

    async def create_job(self, manifest: Mapping[str, Any]) -> None:
        self.commands.append("apply")
        arguments = manifest["spec"]["template"]["spec"]["containers"][0]["args"]
        self._total = int(arguments[arguments.index("--steps") + 1])
        self._wanted = manifest["spec"]["replicas"]
        self._create_pods()

    async def scale_job(self, name: str, replicas: int) -> None:
        self.commands.append(f"scale {replicas}")
        self._wanted = replicas
        self._create_pods()
        if replicas < len(self._members):
            self.pods = self.pods[:replicas]
            self._form_group()

    async def delete_pod(self, name: str, *, force: bool) -> None:
        assert force
        self.commands.append(f"kill {name}")
        self.pods.remove(name)
        self._form_group(lost=True)
        self._create_pods()

    async def kill_process(self, pod: Mapping[str, Any], pid: int) -> float:
        assert pid == PID
        self.commands.append(f"kill process of {pod['metadata']['name']}")
        self._form_group(lost=True)
        return time.time()

    async def delete_job(self, name: str) -> None:
        self.commands.append("delete")
        if self._training:
            self._training.cancel()
        self.pods.clear()

    async def watch_jobs(self, name: str) -> AsyncIterator[Change]:
        while True:
            spec = {"replicas": self._wanted, "minReplicas": 1, "maxReplicas": MAX_REPLICAS}
            yield "MODIFIED", {"metadata": {"name": name}, "spec": spec, "status": self._status()}
            await asyncio.sleep(STEP_SECONDS)

    async def watch_pods(self, job: str) -> AsyncIterator[Change]:
        known: set[str] = set()
        while True:
            for change, pods in (
                ("DELETED", known - {*self.pods}),
                ("ADDED", {*self.pods} - known),
            ):
                for pod in pods:
                    running = [{"state": {"running": {}}}]
                    yield (
                        change,
                        {
                            "metadata": {"name": pod, "uid": pod},
                            "status": {"containerStatuses": running},
                        },
                    )
            known = {*self.pods}
            await asyncio.sleep(STEP_SECONDS)

    async def log_lines(self, pod: str) -> AsyncIterator[str]:
        read = 0
        while pod in self.pods:
            for line in self._logs.get(pod, [])[read:]:
                read += 1
                yield line
            await asyncio.sleep(STEP_SECONDS)

    def _create_pods(self) -> None:
        async def start(name: str) -> None:
            await asyncio.sleep(POD_START_SECONDS)
            if len(self.pods) < self._wanted:
                self.pods.append(name)
            if len(self.pods) == self._wanted:
                self._form_group()

        for _ in range(self._wanted - len(self.pods)):
            self._starting.add(asyncio.create_task(start(f"char-lm-worker-{next(self._names)}")))

    def _form_group(self, *, lost: bool = False) -> None:
        if self._training:
            self._training.cancel()
        if self._stuck_after is not None and self._round >= self._stuck_after:
            return
        steps_lost = self._step % CHECKPOINT_EVERY if lost else 0
        self._step -= steps_lost
        self._round += 1
        before, self._members = len(self._members), list(self.pods)
        self._state = "Running"
        for pod in self._members:
            self._print(
                pod, f"elastic_pytorch.agent {_now()} INFO workers started in 3 ms: pids {PID}"
            )
        over = {"round": self._round, "replicas": len(self._members), "cause": "FirstRound"}
        if before:
            over |= {"seconds": "0.02", "stepsLost": steps_lost, "cause": "WorkerLost"}
        self._training = asyncio.create_task(self._train([over]))

    async def _train(self, interrupted: list[dict[str, Any]]) -> None:
        leader, size = self._members[0], len(self._members)
        self._print(leader, f"start at step {self._step}/{self._total}  workers {size}")
        while self._step < self._total:
            await asyncio.sleep(STEP_SECONDS)
            self._step += 1
            self._interruptions += interrupted
            interrupted = []
            self._print(
                leader,
                f"step {self._step}/{self._total}  loss {4 / (1 + self._step):.3f}  workers "
                f"{size}  5 ms/step",
            )
            if self._step == self._fail_at:
                self._state = "Failed"
                return
        self._state = "Complete"
        await asyncio.sleep(STEP_SECONDS)
        self._print(leader, f"done at step {self._step}/{self._total}  validation loss 1.640")

    def _print(self, pod: str, text: str) -> None:
        stamp = _now()
        lines = self._logs.setdefault(pod, [])
        if self._log == "torn" and text.startswith("start") and lines:
            lines.append(f"{stamp} {lines[-1].partition(' ')[2]}{text}")
        elif self._log != "silent":
            lines.append(f"{stamp} {text}")

    def _status(self) -> dict[str, Any]:
        ranks = {name: rank for rank, name in enumerate(self._members)}
        failed = {"type": "Failed", "status": "True", "message": "rank 0: ValueError: boom"}
        return {
            "state": self._state,
            "round": self._round,
            "worldSize": len(self._members),
            "history": list(self._interruptions),
            "progress": {"step": self._step, "total": self._total, "loss": "2.1"},
            "workers": [
                {
                    "name": name,
                    "index": index,
                    "node": "node-1",
                    "state": "Running" if name in ranks else "Starting",
                }
                | ({"rank": ranks[name]} if name in ranks else {})
                for index, name in enumerate(self.pods)
            ],
            "conditions": [failed] if self._state == "Failed" else [],
        }


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
