"""Simulated agents, as load for an operator: they speak docs/protocol.md over real HTTP, for pods of a cluster in memory."""

import asyncio
import ipaddress
import itertools
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.in_memory import FakeCluster

from tests.scale.simulated_training import Training

NAMESPACE = "default"
CONTAINER_SECONDS = 1.5  # from the scheduler to the container
IMPORT_SECONDS = 2.0  # from the container to the agent that is ready
STOP_SECONDS = 0.2
LEAVE_SECONDS = 2.0
RETRY_SECONDS = 0.2
LOOK_SECONDS = 0.1
REQUEST_SECONDS = 30.0


@dataclass
class Agent:
    """The agent of one pod."""

    name: str
    node: str
    job: str
    training: Training
    token: str
    session: aiohttp.ClientSession
    find_operator: Callable[[], str]
    end: Callable[[str, int], None]
    state: str = "ready"
    round: int = 0
    rank: int = 0
    size: int = 0
    nudge: int = 0
    restarts: int = 0
    failure: dict[str, Any] | None = None
    failed_at: float = 0.0
    silent: bool = False  # its node is lost
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Sends heartbeats and joins rounds until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_heartbeats())
            tasks.create_task(self._follow_rounds())

    def fail(self, exception: str, message: str, exit_code: int = 1) -> None:
        """A worker process fails."""
        self.failure = {"localRank": 0, "rank": self.rank, "exitCode": exit_code, "signal": "", "exception": exception}
        self.failure |= {"message": f"{exception}: {message}", "traceback": ""}
        self.failed_at = time.monotonic()
        self.training.leave(self.name, self.failed_at)
        self.report("failed")

    def report(self, state: str) -> None:
        """Changes its state, and sends a heartbeat at once."""
        self.state = state
        self.changed.set()

    async def _send_heartbeats(self) -> None:
        pause = 1.0
        while not self.silent:
            if self._step() is not None and self._step() == self.training.total and self.state == "running":
                self.state = "succeeded"
            with suppress(aiohttp.ClientError, TimeoutError):
                pause = (await self._ask("POST", "/v1/heartbeat", json=self._describe())).get("heartbeatSeconds", 1.0)
            await self._wait(pause)

    async def _wait(self, pause: float) -> None:
        """Waits for the next heartbeat, which is earlier at a change of the state and at a round's first step."""
        until, starts = time.monotonic() + pause, self._step() is None
        while (left := until - time.monotonic()) > 0 and not self.changed.is_set() and not (starts and self._step()):
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self.changed.wait(), min(left, LOOK_SECONDS) if self.state == "running" and starts else left
                )
        self.changed.clear()

    def _step(self) -> int | None:
        return self.training.step(time.monotonic()) if self.round == self.training.round and self.round else None

    def _describe(self) -> dict[str, Any]:
        step = self._step()
        first = None if step is None else self.training.first
        said: dict[str, Any] = {"incarnation": self.incarnation, "state": self.state, "round": self.round, "rank": self.rank}
        said |= {"worldSize": self.size, "localWorldSize": 1, "port": 29501, "restarts": self.restarts, "failure": None}
        if self.state == "failed" and self.failure:
            said["failure"] = {**self.failure, "ageSeconds": time.monotonic() - self.failed_at}
        return said | {"progress": {"step": step, "firstStep": first, "total": self.training.total}}

    async def _follow_rounds(self) -> None:
        while True:
            try:
                found = await self._ask("GET", f"/v1/round?after={self.round}&nudge={self.nudge}&hold=20")
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.silent:
                await asyncio.Event().wait()
            if found.get("verdict"):
                self.end(self.name, int(found["verdict"] == "failed"))
                return
            if found["nudge"] != self.nudge:
                self.nudge = found["nudge"]
                self.changed.set()
            if found["round"] > self.round:
                await self._join(found)

    async def _join(self, found: dict[str, Any]) -> None:
        members = [member["worker"] for member in found["members"]]
        orderly = 0 < found["orderlySince"] <= self.round
        leaving = self.state == "leaving"
        if self.state == "running":
            self.training.leave(self.name, time.monotonic())
            if not orderly:
                self.report("stopping")
                await asyncio.sleep(STOP_SECONDS)
        self.round, self.failure = found["round"], None
        if self.name not in members or leaving:
            self.report("leaving" if leaving else "ready")
            return
        self.rank, self.size, self.restarts = members.index(self.name), len(members), self.restarts + 1
        self.training.join(self.name, self.round, self.size, orderly=orderly, now=time.monotonic())
        self.report("running")

    async def _ask(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        url = self.find_operator()
        if not url:
            raise aiohttp.ClientConnectionError("the Service has no endpoint")
        headers, timeout = {"Authorization": f"Bearer {self.token}"}, aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with self.session.request(method, url + path, headers=headers, timeout=timeout, **body) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json()
            return found


class SimulatedKubelets:
    """Run the worker pods of a cluster in memory, each with its agent.

    Args:
        cluster: the cluster.
        session: for the agents' requests.
        find_operator: the URL behind the operator's Service; empty: it has no endpoint.

    Attributes:
        agents: those that have started, by their pod's name.
        trainings: of the jobs, by name: what is not set when a job's first pod starts does not end.
    """

    def __init__(self, cluster: FakeCluster, session: aiohttp.ClientSession, find_operator: Callable[[], str]) -> None:
        self._cluster = cluster
        self._session = session
        self._find_operator = find_operator
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._deletions: set[asyncio.Task[None]] = set()
        self._lost_nodes: set[str] = set()
        self._addresses = itertools.count(int(ipaddress.ip_address("10.0.0.1")))
        self.agents: dict[str, Agent] = {}
        self.trainings: dict[str, Training] = {}
        cluster.watch(self._on_change)

    def running(self, job: str) -> list[Agent]:
        """Returns the agents of a job's running workers that are not on a lost node, by rank."""
        found = [a for a in self.agents.values() if a.job == job and a.state == "running" and not a.silent]
        return sorted(found, key=lambda agent: agent.rank)

    def kill(self, pod: str, exit_code: int = 137) -> None:
        """Ends a pod's container."""
        task, agent = self._tasks.pop(pod, None), self.agents.pop(pod, None)
        if agent is not None:
            agent.training.leave(pod, time.monotonic())
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        self._set_status(pod, {"terminated": ended}, phase="Failed" if exit_code else "Succeeded")

    def lose_node(self, node: str) -> None:
        """Loses a node: its pods are silent, and no pod starts there."""
        self._lost_nodes.add(node)
        for agent in self.agents.values():
            if agent.node == node:
                agent.silent = True
                agent.training.leave(agent.name, time.monotonic())

    async def close(self) -> None:
        """Ends all pods."""
        tasks = [*self._tasks.values(), *self._deletions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_change(self, kind: str, change: str, pod: dict[str, Any]) -> None:
        if kind != "Pod" or not _job(pod):
            return
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if change == "DELETED":
            self.agents.pop(name, None)
            if (task := self._tasks.pop(name, None)) is not None:
                task.cancel()
        elif not node or node in self._lost_nodes:
            return
        elif pod["metadata"].get("deletionTimestamp"):
            deletion = asyncio.ensure_future(self._delete(name))
            self._deletions.add(deletion)
            deletion.add_done_callback(self._deletions.discard)
        elif name not in self._tasks and pod["status"].get("phase") == "Pending":
            self._tasks[name] = asyncio.ensure_future(self._run(pod))

    async def _run(self, pod: dict[str, Any]) -> None:
        name, node, job = pod["metadata"]["name"], pod["spec"]["nodeName"], _job(pod)
        await asyncio.sleep(CONTAINER_SECONDS)
        address = ipaddress.ip_address(next(self._addresses))
        self._set_status(name, {"running": {}}, phase="Running", podIP=str(address))
        await asyncio.sleep(IMPORT_SECONDS)
        training = self.trainings.setdefault(job, Training())
        token = self._cluster.issue_token(NAMESPACE, name)
        self.agents[name] = Agent(name, node, job, training, token, self._session, self._find_operator, self.kill)
        await self.agents[name].run()

    async def _delete(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            number = agent.round
            agent.report("leaving")
            until = time.monotonic() + LEAVE_SECONDS
            while agent.round == number and time.monotonic() < until:
                await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(STOP_SECONDS)
        self._cluster.finish_deletion(NAMESPACE, name)

    def _set_status(self, name: str, state: dict[str, Any], **status: str) -> None:
        containers = [{"name": names.TRAINING_CONTAINER, "state": state}]
        self._cluster.set_pod_status(NAMESPACE, name, {**status, "containerStatuses": containers})


def _job(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_JOB_NAME, ""))
