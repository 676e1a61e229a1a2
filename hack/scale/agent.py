"""A simulated agent for one pod. It speaks docs/internals/protocol.md, as elastic_pytorch/operator_link/stream_link.py does."""

import asyncio
import errno
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
from scale.training import START_SECONDS, Training

STOP_SECONDS = 0.2  # that workers take to stop
HEARTBEAT_TIMEOUT_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.2
FIRST_RETRIES_SECONDS = 10.0
LATER_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """A round, and the operator's other news.

    Attributes:
        rank: of the asker; None: the round does not list it.
        size: in pods.
    """

    number: int = 0
    orderly_since: int = 0
    rank: int | None = None
    size: int = 0
    cause: str = ""
    nudge: int = 0


class Observer(Protocol):
    """Is told what agents live through."""

    def told(self, agent: "Agent", round_: Round) -> None:
        """An agent has heard of a newer round."""

    def heard(self, agent: "Agent", seconds: float, error: str) -> None:
        """A heartbeat was answered after some seconds, or it was not: the error is not empty."""


@dataclass(slots=True)
class Job:
    """What the agents of a job share: the training, and the agents by the name of their pod."""

    training: Training
    agents: dict[str, "Agent"] = field(default_factory=dict)

    def wake(self, number: int) -> None:
        for agent in self.agents.values():
            if agent.round == number:
                agent.speak()


@dataclass(eq=False, slots=True)
class Agent:
    """The agent of one pod, whose training does not fail and does not end.

    Attributes:
        find_token: the pod's, as the file that the kubelet keeps.
    """

    name: str
    job_name: str
    job: Job
    link: Connection
    find_token: Callable[[], Awaitable[str]]
    observer: Observer
    state: str = "ready"
    round: int = 0
    rank: int = 0
    size: int = 0
    restarts: int = 0
    newest: Round = field(default_factory=Round)
    heartbeat_seconds: float = 1.0
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: bool = True
    _carrying_out: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Sends heartbeats and carries out rounds until it is cancelled."""
        self.job.agents[self.name] = self
        try:
            await self._keep_talking()
        finally:
            self.job.agents.pop(self.name, None)
            self.job.training.leave(self.name, time.monotonic())
            if self._carrying_out is not None:
                self._carrying_out.cancel()
            self.link.close()

    def report(self, state: str) -> None:
        self.state = state
        self.speak()

    def speak(self) -> None:
        self.changed = True
        self.link.poke()

    async def _keep_talking(self) -> None:
        retry = _Retry()
        while True:
            try:
                await self._converse(retry)
            except (OSError, ValueError, KeyError) as error:
                if retry.answered and isinstance(error, ConnectionError):
                    retry.answered = False  # the operator has ended: another may lead
                    continue
                pause = retry.fail(error, self.link.patience)
                self.observer.heard(self, 0.0, retry.error)
                await asyncio.sleep(pause)

    async def _converse(self, retry: "_Retry") -> None:
        await self.link.open("/v1/agent", {"Authorization": f"Bearer {await self.find_token()}"})
        try:
            while True:
                self.changed, began = False, time.monotonic()
                deadline = began + self.link.patience * HEARTBEAT_TIMEOUT_SECONDS
                self.link.send(self._describe())
                while not await self._take(deadline):
                    if time.monotonic() >= deadline:
                        self.link.wait_longer()
                        raise TimeoutError
                self.observer.heard(self, time.monotonic() - began, "")
                self.link.patience = 1
                retry.succeed()
                due = time.monotonic() + self.heartbeat_seconds
                while not self.changed and time.monotonic() < due:
                    await self._take(due)
        finally:
            self.link.close()

    async def _take(self, until: float) -> bool:
        """Takes in what comes next, until a time; returns whether a heartbeat was answered."""
        answered = False
        for line in await self.link.receive(until - time.monotonic()):
            if (refused := line.get("refused")) is not None:
                raise RefusedError(refused["status"], refused["error"], refused.get("retrySeconds"))
            if (answer := line.get("heartbeat")) is not None:
                self.heartbeat_seconds, answered = answer["heartbeatSeconds"], True
            if (found := line.get("round")) is not None:
                self._hear(_read_round(found))
        return answered

    def _hear(self, found: Round) -> None:
        if found.nudge != self.newest.nudge:
            self.changed = True
        newer = found.number > self.newest.number
        self.newest = found if newer else replace(self.newest, nudge=found.nudge)
        if newer:
            self.observer.told(self, found)
        if self.round < self.newest.number and (self._carrying_out is None or self._carrying_out.done()):
            self._carrying_out = asyncio.create_task(self._carry_out())

    async def _carry_out(self) -> None:
        """Takes up rounds, until it is in the newest."""
        while (found := self.newest).number > self.round:
            orderly = 0 < found.orderly_since <= self.round
            if self.state == "running":
                self.job.training.leave(self.name, time.monotonic())
                if not orderly:
                    self.report("stopping")
                    await asyncio.sleep(STOP_SECONDS)
            self.round = found.number
            if found.rank is None:
                self.report("ready")
            else:
                self.rank, self.size, self.restarts = found.rank, found.size, self.restarts + 1
                if self.job.training.join(self.name, self.round, self.size, orderly=orderly, now=time.monotonic()):
                    asyncio.get_running_loop().call_later(START_SECONDS, self.job.wake, self.round)
                self.report("running")

    def _step(self) -> int | None:
        training = self.job.training
        return training.step(time.monotonic()) if self.round == training.round and self.round else None

    def _describe(self) -> dict[str, Any]:
        step = self._step()
        progress = {"step": step, "firstStep": None if step is None else self.job.training.first}
        progress |= {"total": None, "loss": None, "checkpointStep": None, "checkpoints": None}
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
            "progress": progress,
            "failure": None,
        }


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


def _read_round(fields: Mapping[str, Any]) -> Round:
    names = ("round", "orderlySince", "rank", "size", "cause", "nudge")
    return Round(*(fields[name] for name in names))


class _Retry:
    """How long to wait after a failure.

    Attributes:
        answered: a heartbeat was, since the last failure.
        error: a status, what is wrong with a certificate, or what was raised, with the kernel's name for it.
    """

    def __init__(self) -> None:
        self.answered, self.error = False, ""
        self._since: float | None = None

    def succeed(self) -> None:
        self.answered, self.error, self._since = True, "", None

    def fail(self, error: Exception, patience: int) -> float:
        now = time.monotonic()
        self.answered = False
        self._since = now if self._since is None else self._since
        if isinstance(error, RefusedError):
            self.error = str(error.status)
            if error.retry_seconds is not None:
                return error.retry_seconds
        else:
            self.error = getattr(error, "verify_message", "") or type(error).__name__
            if type(error) is OSError and error.errno is not None:
                self.error = errno.errorcode[error.errno]  # of the many that Python has no class for
        early = isinstance(error, TimeoutError) or patience > 1 or now - self._since < FIRST_RETRIES_SECONDS
        return (FIRST_RETRY_SECONDS * patience**2 if early else LATER_RETRY_SECONDS) * random.uniform(0.5, 1.5)
