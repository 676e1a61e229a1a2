"""The job that faults are made to, and how it is made whole again after each."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from measure.api import Api, ApiError, jobs_path, pods_path
from measure.commands import Commands
from measure.kind_cluster import OPERATOR_NAMESPACE, example
from measure.watcher import Watcher

from bench.nodes import TEMPLATE_LABEL, Nodes, crowded, has_ended, is_ready, lone_victims

ENDLESS = 1_000_000_000  # steps
START_SECONDS = 120.0
OPERATOR_SECONDS = 60.0
TRIES = 6  # to find a victim
QUIET_STEPS = 25  # between two faults: more than a checkpoint's interval, and enough for the failure budget to start again


class SetUp(NamedTuple):
    """What the script does before its first step, and who waits for it.

    Attributes:
        seconds: how long it takes.
        prepare: a worker does it before it joins.
        spares: how many workers wait, ready, for a loss.
    """

    seconds: float = 0.0
    prepare: bool = False
    spares: int = 0


NO_SET_UP = SetUp()


class Stage:
    """One job in a namespace of its own."""

    def __init__(self, api: Api, commands: Commands, watcher: Watcher, file: Path, set_up: SetUp = NO_SET_UP) -> None:
        self.commands, self.watcher, self.nodes = commands, watcher, Nodes(api, commands)
        self._api, self._file, self._namespace, self._set_up = api, file, watcher.namespace, set_up
        self._moved: set[str] = set()

    async def make(self, *, handler: bool) -> None:
        """Makes the job, with a script that handles SIGTERM or does not, in place of an older one."""
        try:
            await self._api.ask("DELETE", jobs_path(self._namespace, self.watcher.name))
        except ApiError as error:
            if error.status != 404:
                raise
        what = "the pods of the job before to be gone"
        await self.watcher.until(lambda: not self.watcher.pods, seconds=START_SECONDS, what=what)
        await self._api.ask("POST", jobs_path(self._namespace), read_job(self._file, handler=handler, set_up=self._set_up))

    async def whole(self, world: int) -> None:
        """Waits until exactly this number of workers train, and have done so for a quiet while."""
        watcher, since, spares = self.watcher, time.time(), self._set_up.spares

        def found() -> bool:
            pods = [p for p in watcher.pods.values() if "deletionTimestamp" not in p["metadata"] and not has_ended(p)]
            if watcher.job.state == "Failed":
                raise RuntimeError("the job has failed")
            steps = watcher.timeline.steps_of_group(after=since)
            quiet = len(steps) >= QUIET_STEPS and all(step.world == world for step in steps)
            return quiet and len(self.members()) == world == len(pods) - spares and watcher.job.ready_spares == spares

        await watcher.until(found, seconds=START_SECONDS + 2 * self._set_up.seconds, what=f"{world} workers to train")

    async def scale(self, replicas: int) -> None:
        await self._api.ask("PATCH", f"{jobs_path(self._namespace, self.watcher.name)}/scale", {"spec": {"replicas": replicas}})

    async def delete_pod(self, namespace: str, pod: str, *, grace: bool) -> None:
        """Does what `kubectl delete pod` does; without grace, with its options `--grace-period=0 --force`."""
        await self._api.ask("DELETE", pods_path(namespace, pod), None if grace else {"gracePeriodSeconds": 0})

    def members(self) -> list[str]:
        """Returns the pods of the current round, in rank order."""
        return [worker.name for worker in self.watcher.job.members]

    async def lone_victim(self, *, leader: bool | None = None) -> str:
        """Returns a member that is not rank 0 and has its node for itself; members that share a node are moved until there is one.

        With `leader`, the operator that leads is on that node, while another stands by; None: it may be.
        """
        for _ in range(TRIES):
            if leader:
                await self.watcher.until(self._stands_by, seconds=OPERATOR_SECONDS, what="an operator that stands by")
            ranked = self.members()
            node_of = {pod: self.watcher.node_of(pod) for pod in ranked}
            leaders = {pod["spec"].get("nodeName") for pod in self.watcher.leaders().values()}
            victims = [pod for pod in lone_victims(node_of, ranked) if leader in (None, node_of[pod] in leaders)]
            if victims:
                return victims[0]
            if moved := crowded(node_of, ranked):
                self._moved.add(moved)
                await self.delete_pod(self._namespace, moved, grace=True)
                await asyncio.sleep(1)
            elif leader:  # another is to lead, where a victim is
                await self.end_leader(grace=True)
            else:
                break
            await self.whole(len(ranked))
        if leader:
            raise RuntimeError("no operator leads on a node with one worker other than rank 0")
        raise RuntimeError("no worker other than rank 0 is alone on a node (that the operator is not on)")

    async def end_leader(self, *, grace: bool) -> float:
        """Deletes the operator's pod that leads, and waits for another to lead; returns when it was deleted."""
        old, at = self.watcher.leaders().keys(), time.time()
        for pod in old:
            await self.delete_pod(OPERATOR_NAMESPACE, pod, grace=grace)
        what = "another operator to lead"
        await self.watcher.until(lambda: self.watcher.leaders().keys() - old, seconds=OPERATOR_SECONDS, what=what)
        return at

    def _stands_by(self) -> bool:
        """Two operators on nodes of their own, of which one leads."""
        operators = self.watcher.operators.values()
        nodes = {o["spec"]["nodeName"] for o in operators if is_ready(o) and "deletionTimestamp" not in o["metadata"]}
        return len(nodes) >= 2 and len(self.watcher.leaders()) == 1

    def restarts(self, pods: Iterable[str]) -> dict[str, int]:
        found = {}
        for name in pods:
            states = self.watcher.pods.get(name, {}).get("status", {}).get("containerStatuses") or ()
            found[name] = sum(state.get("restartCount", 0) for state in states)
        return found

    def restarts_since(self, before: dict[str, int], victims: tuple[str, ...]) -> int:
        """Returns how often pods that were no victims have restarted, or have gone; those moved on purpose aside."""
        now = self.restarts(self.watcher.pods)
        return sum(now.get(pod, count + 1) - count for pod, count in before.items() if pod not in {*victims, *self._moved})


def read_job(file: Path, *, handler: bool, set_up: SetUp = NO_SET_UP) -> dict[str, Any]:
    """Returns a job that trains without end, its pods marked for `drain`.

    Args:
        file: an example.
        handler: its script saves and leaves on SIGTERM.
        set_up: what its script does before its first step.
    """
    manifest = example(file, steps=ENDLESS)
    template = manifest["spec"]["template"]
    label, _, value = TEMPLATE_LABEL.partition("=")
    template.setdefault("metadata", {}).setdefault("labels", {})[label] = value
    arguments = template["spec"]["containers"][0]["args"]
    arguments += ["--save-on-sigterm"] if handler else []
    arguments += ["--set-up-seconds", f"{set_up.seconds:g}"] if set_up.seconds else []
    manifest["spec"] |= {"prepare": {}} if set_up.prepare else {}
    manifest["spec"] |= {"spares": set_up.spares} if set_up.spares else {}
    return manifest
