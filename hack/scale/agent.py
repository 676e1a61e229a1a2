"""A simulated agent: it speaks docs/protocol.md as worker_image/elastic_pytorch/operator_link/client.py does, for one pod."""

import asyncio
import json
import random
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from scale.connection import Connection, RefusedError, Server
from scale.rounds import Round, read_round
from scale.training import Training

STOP_SECONDS = 0.2  # that workers take to stop
POLL_SECONDS = 20
POLL_TIMEOUT_SECONDS = 30.0
HEARTBEAT_TIMEOUT_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.2
FIRST_RETRIES_SECONDS = 10.0
LATER_RETRY_SECONDS = 2.0
POLL_HEAD_START_SECONDS = 0.02


class Observer(Protocol):
    """Is told what agents live through."""

    def told(self, agent: "Agent", round_: Round) -> None:
        """An agent has heard of a newer round."""

    def heard(self, agent: "Agent", seconds: float, error: str) -> None:
        """A heartbeat was answered after some seconds, or it was not: the error is not empty."""


class NoObserver:
    """Is told in vain."""

    def told(self, agent: "Agent", round_: Round) -> None: ...
    def heard(self, agent: "Agent", seconds: float, error: str) -> None: ...


@dataclass(slots=True)
class Job:
    """What the agents of a job share: the training, and the agents by the name of their pod."""

    training: Training
    agents: dict[str, "Agent"] = field(default_factory=dict)

    def wake(self, number: int) -> None:
        """Each agent of a round reports its first step."""
        for agent in self.agents.values():
            if agent.round == number:
                agent.changed.set()


@dataclass(eq=False, slots=True)
class Agent:
    """The agent of one pod.

    Attributes:
        find_token: the pod's, as the file that the kubelet keeps.
        end: called with the pod's name and an exit code once the job has ended.
        silent: its node is lost.
    """

    name: str
    job_name: str
    job: Job
    beats: Connection
    polls: Connection
    find_token: Callable[[], Awaitable[str]]
    end: Callable[[str, int], None]
    observer: Observer = field(default_factory=NoObserver)
    node: str = ""
    state: str = "ready"
    round: int = 0
    rank: int = 0
    size: int = 0
    restarts: int = 0
    failure: dict[str, Any] | None = None
    failed_at: float = 0.0
    silent: bool = False
    newest: Round = field(default_factory=Round)
    heartbeat_seconds: float = 1.0
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)  # the last heartbeat was
    _carrying_out: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Sends heartbeats and carries out rounds until it is cancelled."""
        self.job.agents[self.name] = self
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_heartbeats())
                tasks.create_task(self._poll_rounds())
        finally:
            self.job.agents.pop(self.name, None)
            self.job.training.leave(self.name, time.monotonic())
            if self._carrying_out is not None:
                self._carrying_out.cancel()
            self.beats.close()
            self.polls.close()

    def fail(self, exception: str, message: str, exit_code: int = 1) -> None:
        """A worker process fails."""
        self.failure = {"localRank": 0, "rank": self.rank, "exitCode": exit_code, "signal": "", "exception": exception}
        self.failure |= {"message": f"{exception}: {message}", "traceback": ""}
        self.failed_at = time.monotonic()
        self.job.training.leave(self.name, self.failed_at)
        self.report("failed")

    def report(self, state: str) -> None:
        """Changes its state, and sends a heartbeat at once."""
        self.state = state
        self.changed.set()

    async def _send_heartbeats(self) -> None:
        retry = _Retry()
        while not self.silent:
            step = self._step()
            if step is not None and step == self.job.training.total and self.state == "running":
                self.state = "succeeded"
            self.changed.clear()
            began = time.monotonic()
            pause = await retry.run(self._heartbeat, self.beats)
            self.observer.heard(self, time.monotonic() - began, retry.error)
            if retry.failing:
                self.answered.clear()
            else:
                self.answered.set()
            if retry.asked:
                await asyncio.sleep(pause)
                continue
            try:
                async with asyncio.timeout(pause if retry.failing else self.heartbeat_seconds):
                    await self.changed.wait()
            except TimeoutError:
                continue

    async def _heartbeat(self) -> None:
        answer = json.loads(await self._ask(self.beats, "POST", "/v1/heartbeat", self._describe()))
        self.heartbeat_seconds = answer["heartbeatSeconds"]
        if self._lacks(answer):
            await asyncio.sleep(POLL_HEAD_START_SECONDS)  # mostly the poll's answer is on its way
        if self._lacks(answer):
            await self._fetch(self.beats, 0)
            self.polls.close()  # it may be dead

    def _lacks(self, answer: dict[str, Any]) -> bool:
        return bool(answer["round"] > self.newest.number or answer.get("nudge", 0) != self.newest.nudge)

    async def _poll_rounds(self) -> None:
        retry = _Retry()
        await self.answered.wait()
        while self.newest.verdict is None:
            before, began = self.newest, time.monotonic()
            pause = await retry.run(lambda: self._fetch(self.polls, POLL_SECONDS), self.polls)
            if self.silent:
                await asyncio.Event().wait()
            if retry.failing:
                await asyncio.sleep(pause)
                await self.answered.wait()
            elif self.newest == before and time.monotonic() - began < FIRST_RETRY_SECONDS:
                await asyncio.sleep(FIRST_RETRY_SECONDS)  # an early answer without news
        self.end(self.name, int(self.newest.verdict == "failed"))

    async def _fetch(self, connection: Connection, hold_seconds: int) -> None:
        query = f"after={self.newest.number}&nudge={self.newest.nudge}&hold={hold_seconds}&brief=1"
        found = read_round(await self._ask(connection, "GET", f"/v1/round?{query}"), self.name)
        if self.silent:
            return
        if found.nudge != self.newest.nudge:
            self.changed.set()
        newer = found.number > self.newest.number
        self.newest = found if newer else replace(self.newest, nudge=found.nudge, verdict=found.verdict)
        if newer:
            self.observer.told(self, found)
        if self.round < self.newest.number and (self._carrying_out is None or self._carrying_out.done()):
            self._carrying_out = asyncio.create_task(self._carry_out())

    async def _carry_out(self) -> None:
        """Takes up rounds, until it is in the newest."""
        while (found := self.newest).number > self.round:
            orderly, leaving = 0 < found.orderly_since <= self.round, self.state == "leaving"
            if self.state == "running":
                self.job.training.leave(self.name, time.monotonic())
                if not orderly:
                    self.report("stopping")
                    await asyncio.sleep(STOP_SECONDS)
            self.round, self.failure = found.number, None
            if found.rank is None or leaving:
                self.report("leaving" if leaving else "ready")
            else:
                self.rank, self.size, self.restarts = found.rank, found.size, self.restarts + 1
                if self.job.training.join(self.name, self.round, self.size, orderly=orderly, now=time.monotonic()):
                    asyncio.get_running_loop().call_later(self.job.training.start_seconds, self.job.wake, self.round)
                self.report("running")

    def _step(self) -> int | None:
        training = self.job.training
        return training.step(time.monotonic()) if self.round == training.round and self.round else None

    def _describe(self) -> dict[str, Any]:
        step = self._step()
        progress = {"step": step, "firstStep": None if step is None else self.job.training.first}
        progress |= {"total": self.job.training.total, "loss": None, "checkpointStep": None, "checkpoints": None}
        failure = {**self.failure, "ageSeconds": time.monotonic() - self.failed_at} if self.failure else None
        return {
            "incarnation": self.incarnation,
            "state": self.state,
            "round": self.round,
            "rank": self.rank,
            "newest": self.newest.number,
            "worldSize": self.size,
            "localWorldSize": 1,
            "port": 29501,
            "restarts": self.restarts,
            "progress": {**progress, "commitEverySteps": None},
            "failure": failure if self.state == "failed" else None,
        }

    async def _ask(self, connection: Connection, method: str, path: str, body: object = None) -> bytes:
        return await connection.request(method, path, {"Authorization": f"Bearer {await self.find_token()}"}, body)


class Operators:
    """Where pods are told that the operator is: its name is resolved once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Server] = {}

    def of(self, pod: Mapping[str, Any]) -> Server:
        """Returns what the environment of a pod says."""
        environment = {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}
        url, authorities = (
            environment["ELASTIC_PYTORCH_OPERATOR_URL"],
            environment.get("ELASTIC_PYTORCH_OPERATOR_AUTHORITIES", ""),
        )
        if (url, authorities) not in self._known:
            place = urlsplit(url)
            host, port = place.hostname or "", place.port or 443
            tls = ssl.create_default_context(cadata=authorities) if place.scheme == "https" else None
            self._known[url, authorities] = Server(host, socket.gethostbyname(host), port, tls)
        return self._known[url, authorities]


def connections(server: Server, source: str = "") -> tuple[Connection, Connection]:
    """Returns an agent's two: for heartbeats and for polls."""
    return Connection(server, HEARTBEAT_TIMEOUT_SECONDS, source), Connection(server, POLL_TIMEOUT_SECONDS, source)


class _Retry:
    """How long to wait after a failure; `asked`: the operator itself has asked for that.

    `error` is a status, what is wrong with a certificate, or what was raised.
    """

    def __init__(self) -> None:
        self.failing, self.asked, self.error = False, False, ""
        self._since = 0.0

    async def run(self, request: Callable[[], Awaitable[None]], connection: Connection) -> float:
        self.asked = False
        try:
            await request()
        except (OSError, ValueError, KeyError) as error:
            now = time.monotonic()
            self._since = self._since if self.failing else now
            self.failing, self.error = True, getattr(error, "verify_message", "") or type(error).__name__
            if isinstance(error, RefusedError):
                self.error = str(error.status)
            if isinstance(error, RefusedError) and error.retry_seconds is not None:
                self.asked = True
                return error.retry_seconds
            early = isinstance(error, TimeoutError) or connection.patience > 1 or now - self._since < FIRST_RETRIES_SECONDS
            return (FIRST_RETRY_SECONDS * connection.patience**2 if early else LATER_RETRY_SECONDS) * random.uniform(0.5, 1.5)
        self.failing, self.error = False, ""
        return 0.0
