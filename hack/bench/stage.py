"""The job that faults are made to, and how it is made whole again after each."""

import asyncio
import copy
import time
from typing import Any

from api import JOB_API, JOBS, Api, ApiError
from commands import Commands
from nodes import Nodes, crowded, lone_victims
from watcher import OPERATOR_NAMESPACE, Watcher

TEMPLATE_LABEL = "benchmark=trial"
START_SECONDS = 120.0
BALANCE_TRIES = 3
LEADER_TRIES = 6
QUIET_STEPS = 25  # between two faults: more than a checkpoint's interval, and enough for the failure budget to start anew


class Stage:
    """One job in a namespace of its own."""

    def __init__(self, api: Api, commands: Commands, watcher: Watcher, namespace: str, manifest: dict[str, Any]) -> None:
        self.api, self.commands, self.watcher, self.namespace = api, commands, watcher, namespace
        self.nodes = Nodes(api, commands)
        self._manifest = manifest
        self._job = str(manifest["metadata"]["name"])
        self._moved: set[str] = set()

    async def make(self, *, handler: bool) -> None:
        """Make the job, with a script that handles SIGTERM or does not, in place of an older one."""
        jobs = f"{JOB_API}/namespaces/{self.namespace}/{JOBS}"
        try:
            await self.api.ask("DELETE", f"{jobs}/{self._job}")
        except ApiError as error:
            if error.status != 404:
                raise
        what = "the pods of the job before to be gone"
        await self.watcher.until(lambda: not self.watcher.pods or None, seconds=START_SECONDS, what=what)
        await self.api.ask("POST", jobs, with_handler(self._manifest) if handler else self._manifest)

    async def whole(self, world: int) -> None:
        """Wait until exactly so many workers train, and have done so for a quiet while."""
        watcher, since = self.watcher, time.time()

        def found() -> bool | None:
            pods = [pod for pod in watcher.pods.values() if "deletionTimestamp" not in pod["metadata"]]
            if watcher.status.get("state") == "Failed":
                raise RuntimeError("the job has failed")
            quiet = watcher.steps_since(since, world) >= QUIET_STEPS
            return (quiet and len(watcher.members()) == world == len(pods)) or None

        await watcher.until(found, seconds=START_SECONDS, what=f"{world} workers to train")

    async def prepare(self, world: int) -> None:
        """Bring the job to a size, and wait until it is whole."""
        if self.watcher.job.get("spec", {}).get("replicas") != world:
            await self.scale(world)
        await self.whole(world)

    async def scale(self, replicas: int) -> None:
        """Ask for another size."""
        await self.api.scale(self.namespace, self._job, replicas)

    async def lone_victim(self, *, without_operator: bool = False) -> str:
        """Find a member that is not rank 0 and has its node for itself; move members until there is one."""
        for _ in range(BALANCE_TRIES):
            ranked = self.watcher.members()
            node_of = {pod: self.watcher.node_of(pod) for pod in ranked}
            leaders = self.watcher.leading_operators().values()
            operators = {pod["spec"].get("nodeName") for pod in leaders} if without_operator else set()
            victims = [pod for pod in lone_victims(node_of, ranked) if node_of[pod] not in operators]
            if victims:
                return victims[0]
            if (moved := crowded(node_of, ranked)) is None:
                break
            await self._move(moved, len(ranked))
        raise RuntimeError("no worker other than rank 0 is alone on a node (that the operator is not on)")

    async def _move(self, pod: str, world: int) -> None:
        """Delete a member, so that the scheduler chooses a node for another one, and wait until the job is whole."""
        self._moved.add(pod)
        await self.api.ask("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{pod}")
        await asyncio.sleep(1)
        await self.whole(world)

    async def victim_beside_leader(self, seconds: float) -> str:
        """Find a member that is not rank 0 and has its node for itself and the operator that leads, while another stands by.

        Members that share a node are moved. Then the leader's pod is deleted, with grace, until one leads where such a member is.
        """
        for _ in range(LEADER_TRIES):
            await self.watcher.until(self._two_ready_operators, seconds=seconds, what="an operator that stands by")
            ranked = self.watcher.members()
            node_of = {pod: self.watcher.node_of(pod) for pod in ranked}
            [(leader, pod)] = self.watcher.leading_operators().items()
            for victim in lone_victims(node_of, ranked):
                if node_of[victim] == pod["spec"]["nodeName"]:
                    return victim
            if (moved := crowded(node_of, ranked)) is not None:
                await self._move(moved, len(ranked))
                continue
            await self.api.ask("DELETE", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{leader}")
            await self._another_leads({leader}, seconds)
            await self.whole(len(ranked))
        raise RuntimeError("no operator leads on a node with one worker other than rank 0")

    async def kill_operator(self, seconds: float) -> float:
        """Kill the operator that leads, and wait for another to lead; return when it was killed."""
        old = set(self.watcher.leading_operators())
        at = time.time()
        for pod in old:
            await self.api.kill_pod(OPERATOR_NAMESPACE, pod)
        await self._another_leads(old, seconds)
        return at

    async def _another_leads(self, old: set[str], seconds: float) -> None:
        def replaced() -> bool | None:
            return bool(self.watcher.leading_operators().keys() - old) or None

        await self.watcher.until(replaced, seconds=seconds, what="another operator to lead")

    def _two_ready_operators(self) -> bool | None:
        """Two operators on nodes of their own, of which one leads."""
        operators = self.watcher.operators.values()
        ready = [pod for pod in operators if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
        nodes = {pod["spec"]["nodeName"] for pod in ready}
        return (len(nodes) >= 2 and len(self.watcher.leading_operators()) == 1) or None

    async def pass_time(self, seconds: float) -> None:
        """Let the job train on."""
        await asyncio.sleep(seconds)

    def restarts_since(self, before: dict[str, int], victims: tuple[str, ...]) -> int:
        """How often members that were no victims have restarted, or have gone, since a snapshot; those moved on purpose aside."""
        now = {pod: self._restarts(pod) for pod in self.watcher.pods}
        return sum(now.get(pod, count + 1) - count for pod, count in before.items() if pod not in {*victims, *self._moved})

    def restart_counts(self) -> dict[str, int]:
        """A snapshot: the container restarts of each member."""
        return {pod: self._restarts(pod) for pod in self.watcher.members()}

    def _restarts(self, pod: str) -> int:
        statuses = self.watcher.pods.get(pod, {}).get("status", {}).get("containerStatuses") or ()
        return sum(status.get("restartCount", 0) for status in statuses)


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod's Ready condition says so."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def prepared(manifest: dict[str, Any]) -> dict[str, Any]:
    """Let the example's job train without end, with pods that `kubectl drain` can tell from others."""
    # The test cluster has a folder that all nodes share, and no storage class for a volume that they share.
    del manifest["spec"]["volumeClaimTemplates"]
    manifest["spec"]["template"]["spec"]["volumes"].append({"name": "checkpoints", "hostPath": {"path": "/shared"}})
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    arguments[arguments.index("--steps") + 1] = "1000000000"
    label, _, value = TEMPLATE_LABEL.partition("=")
    template = manifest["spec"]["template"]
    template.setdefault("metadata", {}).setdefault("labels", {})[label] = value
    return manifest


def with_handler(manifest: dict[str, Any]) -> dict[str, Any]:
    """The job with a script that saves and leaves on SIGTERM."""
    manifest = copy.deepcopy(manifest)
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    container["args"].append("--save-on-sigterm")
    return manifest
