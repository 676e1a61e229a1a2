"""A cluster in memory that runs one job, quickly: it takes commands of kubectl, and says what the API server would say of the job."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from measure.api import Api
from measure.commands import CommandFailed, Commands

STEP_SECONDS = 0.002
POD_START_SECONDS = 0.02
CHECKPOINT_EVERY = 20


class CountingCluster(Commands, Api):
    """Trains by counting. A pod that is killed costs the steps since the last checkpoint; its replacement takes a while.

    Args:
        fail_at: the step at which the job fails.
        stuck_after: the round after which no further one forms.
        log: `whole`; `torn`, as a group's last line has no end; or `silent`, as nothing is written.
    """

    def __init__(self, *, fail_at: int | None = None, stuck_after: int | None = None, log: str = "whole") -> None:
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

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        match arguments:
            case ("apply", "-f", "-"):
                self._apply(json.loads(stdin))
            case ("scale", "epj/char-lm", replicas):
                self._scale(int(replicas.removeprefix("--replicas=")))
            case ("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false"):
                self._kill_pod(pod)
            case ("delete", "epj/char-lm", "--ignore-not-found", "--cascade=foreground", "--timeout=600s"):
                self._delete_job()
            case ("wait", "pod", "-l", "elasticpytorch.dev/job-name=char-lm", "--for=delete", "--timeout=600s"):
                assert not self.pods
            case _:
                raise CommandFailed(f"kubectl {' '.join(arguments)}: unknown")
        return ""

    def _apply(self, manifest: dict[str, Any]) -> None:
        self.commands.append("apply")
        arguments = manifest["spec"]["template"]["spec"]["containers"][0]["args"]
        self._total = int(arguments[arguments.index("--steps") + 1])
        self._wanted = manifest["spec"]["replicas"]
        self._create_pods()

    def _scale(self, replicas: int) -> None:
        self.commands.append(f"scale {replicas}")
        self._wanted = replicas
        self._create_pods()
        if replicas < len(self._members):
            self.pods = self.pods[:replicas]
            self._form_group()

    def _kill_pod(self, pod: str) -> None:
        self.commands.append(f"kill {pod}")
        self.pods.remove(pod)
        self._form_group(lost=True)
        self._create_pods()

    def _delete_job(self) -> None:
        self.commands.append("delete")
        if self._training:
            self._training.cancel()
        self.pods.clear()

    async def watch(self, path: str, selector: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        del selector
        known: set[str] = set()
        while True:
            if path.endswith("/elasticpytorchjobs"):
                yield "MODIFIED", {"metadata": {"name": "char-lm"}, "status": self._status()}
            else:
                for change, pods in (("DELETED", known - {*self.pods}), ("ADDED", {*self.pods} - known)):
                    for pod in pods:
                        running = [{"state": {"running": {}}}]
                        yield change, {"metadata": {"name": pod, "uid": pod}, "status": {"containerStatuses": running}}
                known = {*self.pods}
            await asyncio.sleep(STEP_SECONDS)

    async def lines(self, path: str) -> AsyncIterator[str]:
        pod = path.split("/")[-2]
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
        over = {"round": self._round, "seconds": "0.02", "stepsLost": steps_lost, "from": before, "to": len(self._members)}
        self._training = asyncio.create_task(self._train([over] if before else []))

    async def _train(self, interrupted: list[dict[str, Any]]) -> None:
        leader, size = self._members[0], len(self._members)
        self._print(leader, f"start at step {self._step}/{self._total}  workers {size}")
        while self._step < self._total:
            await asyncio.sleep(STEP_SECONDS)
            self._step += 1
            self._interruptions += interrupted
            interrupted = []
            self._print(leader, f"step {self._step}/{self._total}  loss {4 / (1 + self._step):.3f}  workers {size}  5 ms/step")
            if self._step == self._fail_at:
                self._state = "Failed"
                return
        self._state = "Complete"
        await asyncio.sleep(STEP_SECONDS)
        self._print(leader, f"done at step {self._step}/{self._total}  validation loss 1.640")

    def _print(self, pod: str, text: str) -> None:
        stamp = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
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
            "recentInterruptions": list(self._interruptions),
            "progress": {"step": self._step, "total": self._total, "loss": "2.1"},
            "workers": [
                {"name": name, "index": index, "node": "node-1", "state": "Running" if name in ranks else "Starting"}
                | ({"rank": ranks[name]} if name in ranks else {})
                for index, name in enumerate(self.pods)
            ],
            "conditions": [failed] if self._state == "Failed" else [],
        }
