"""Agents and kubelets that are none: they speak as docs/protocol.md has it, over real HTTP, for pods that are only objects."""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from simulated_training import Training

CONTAINER_SECONDS = 1.5  # from the scheduler to the container
IMPORT_SECONDS = 2.0  # from the container to the agent that is ready
STOP_SECONDS = 0.2
LEAVE_SECONDS = 2.0
RETRY_SECONDS = 0.2
LOOK_SECONDS = 0.1
MAX_POLL_SECONDS = 30.0


@dataclass
class Agent:
    """The agent of one pod."""

    pod: dict[str, Any]
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
    broken_code: str = ""  # what its script raises as soon as it starts
    hangs: bool = False  # with its node: nothing of it is heard again
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["name"])

    async def live(self) -> None:
        """Speaks and listens until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._listen())

    def fail(self, exception: str, message: str, *, exit_code: int = 1, signal: str = "") -> None:
        """One of its workers fails."""
        self.failure = {"localRank": 0, "rank": self.rank, "exitCode": exit_code, "signal": signal, "exception": exception}
        self.failure |= {"message": f"{exception}: {message}", "traceback": ""}
        self.failed_at = time.monotonic()
        self.training.leave(self.name, self.failed_at)
        self.turn("failed")

    def turn(self, state: str) -> None:
        """Comes to another state, and says so at once."""
        self.state = state
        self.changed.set()

    async def _beat(self) -> None:
        pause = 1.0
        while not self.hangs:
            with suppress(aiohttp.ClientError, TimeoutError):
                answer = await self._ask("POST", "/v1/heartbeat", json=self._describe())
                pause = answer.get("heartbeatSeconds", 1.0)
            await self._wait(pause)

    async def _wait(self, pause: float) -> None:
        """Until the next heartbeat: it is sooner if the state changes or the round comes to its first step."""
        until, waited_for_step = time.monotonic() + pause, self._step() is None
        while time.monotonic() < until and not self.changed.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            step = self._step()
            if step is not None and self.state == "running" and step == self.training.total:
                self.turn("succeeded")
            if waited_for_step and step is not None:
                break
        self.changed.clear()

    def _step(self) -> int | None:
        return self.training.step(time.monotonic()) if self.round == self.training.round and self.round else None

    def _describe(self) -> dict[str, Any]:
        step = self._step()
        first = self.training.first if step is not None else None
        said: dict[str, Any] = {"incarnation": self.incarnation, "state": self.state, "round": self.round, "rank": self.rank}
        said |= {"worldSize": self.size, "localWorldSize": 1, "port": 29501, "restarts": self.restarts, "failure": None}
        if self.state == "failed" and self.failure:
            said["failure"] = {**self.failure, "ageSeconds": time.monotonic() - self.failed_at}
        return said | {"progress": {"step": step, "firstStep": first, "total": self.training.total}}

    async def _listen(self) -> None:
        while True:
            try:
                path = f"/v1/round?after={self.round}&nudge={self.nudge}&hold=20"
                found = await self._ask("GET", path)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.hangs:
                await asyncio.Event().wait()
            if found.get("verdict"):
                self.end(self.name, int(found["verdict"] == "failed"))
                return
            if found["nudge"] != self.nudge:
                self.nudge = found["nudge"]
                self.changed.set()
            if found["round"] > self.round:
                await self._take_up(found)

    async def _take_up(self, found: dict[str, Any]) -> None:
        members = [member["worker"] for member in found["members"]]
        orderly = 0 < found["orderlySince"] <= self.round
        leaving = self.state == "leaving"
        if self.state == "running":
            self.training.leave(self.name, time.monotonic())
            if not orderly:
                self.turn("stopping")
                await asyncio.sleep(STOP_SECONDS)
        self.round, self.failure = found["round"], None
        if self.name not in members or leaving:
            self.turn("leaving" if leaving else "ready")
            return
        self.rank, self.size, self.restarts = members.index(self.name), len(members), self.restarts + 1
        self.turn("running")
        self.training.enter(self.name, self.round, self.size, orderly=orderly, now=time.monotonic())
        if self.broken_code and self.rank == 0:
            await asyncio.sleep(STOP_SECONDS)
            self.fail(*self.broken_code.split(": ", 1))

    async def _ask(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = self.find_operator()
        if not url:
            raise aiohttp.ClientConnectionError("the Service selects nobody")
        timeout = aiohttp.ClientTimeout(total=MAX_POLL_SECONDS)
        async with self.session.request(method, url + path, headers=headers, timeout=timeout, **body) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json()
            return found


class SimulatedKubelets:
    """Run the worker pods of a cluster in memory, each with its agent.

    Args:
        cluster: whose pods to run.
        session: for the agents' requests.
        find_operator: the URL behind the operator's Service; empty: nobody is.
    """

    def __init__(self, cluster: FakeCluster, session: aiohttp.ClientSession, find_operator: Callable[[], str]) -> None:
        self._cluster = cluster
        self._session = session
        self._find_operator = find_operator
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._lost_nodes: set[str] = set()
        self.agents: dict[str, Agent] = {}
        self.trainings: dict[str, Training] = {}
        self.broken_code: dict[str, str] = {}
        cluster.watch(self._on_change)

    def of(self, job: str) -> list[Agent]:
        """The agents of a job's workers that run and are not on a lost node, by rank."""
        found = [
            agent for agent in self.agents.values() if _job(agent.pod) == job and agent.state == "running" and not agent.hangs
        ]
        return sorted(found, key=lambda agent: agent.rank)

    def kill(self, pod: str, exit_code: int = 137) -> None:
        """Ends a pod's container."""
        task, agent = self._tasks.pop(pod, None), self.agents.pop(pod, None)
        if agent is not None:
            agent.training.leave(pod, time.monotonic())
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        self._tell(pod, {"terminated": ended}, phase="Failed" if exit_code else "Succeeded")

    def lose_node(self, node: str) -> None:
        """A node dies: its pods are silent, and no pod starts there."""
        self._lost_nodes.add(node)
        for agent in self.agents.values():
            if agent.pod["spec"]["nodeName"] == node:
                agent.hangs = True
                agent.training.leave(agent.name, time.monotonic())

    def return_node(self, node: str) -> None:
        """A node is back, with nothing on it: what was told to go has gone."""
        self._lost_nodes.discard(node)
        for pod in self._cluster.pods():
            if pod["spec"].get("nodeName") == node and pod["metadata"].get("deletionTimestamp"):
                self._cluster.finish_deletion("default", pod["metadata"]["name"])

    async def close(self) -> None:
        """Ends all pods."""
        tasks = [*self._tasks.values(), *self._leaving]
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
            leaving = asyncio.ensure_future(self._delete(name))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        elif name not in self._tasks and pod["status"].get("phase") == "Pending":
            self._tasks[name] = asyncio.ensure_future(self._run(pod))

    async def _run(self, pod: dict[str, Any]) -> None:
        name, job = pod["metadata"]["name"], _job(pod)
        await asyncio.sleep(CONTAINER_SECONDS)
        self._tell(name, {"running": {}}, phase="Running", podIP=f"10.0.0.{len(self._tasks)}")
        await asyncio.sleep(IMPORT_SECONDS)
        training = self.trainings.setdefault(job, Training())
        token = self._cluster.issue_token("default", name)
        agent = Agent(pod, training, token, self._session, self._find_operator, self.kill)
        agent.broken_code = self.broken_code.get(job, "")
        self.agents[name] = agent
        await agent.live()

    async def _delete(self, name: str) -> None:
        agent = self.agents.get(name)
        if agent is not None:
            number = agent.round
            agent.turn("leaving")
            until = time.monotonic() + LEAVE_SECONDS
            while agent.round == number and time.monotonic() < until:  # noqa: ASYNC110  no event for it
                await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(STOP_SECONDS)
        self._cluster.finish_deletion("default", name)

    def _tell(self, name: str, state: dict[str, Any], **status: str) -> None:
        containers = [{"name": names.TRAINING_CONTAINER, "state": state}]
        self._cluster.set_pod_status("default", name, {**status, "containerStatuses": containers})


def _job(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_JOB_NAME, ""))
