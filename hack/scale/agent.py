"""A simulated agent for one pod, which speaks docs/internals/protocol.md like stream_link.py."""

import asyncio
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from elastic_pytorch.operator_link.retry import Retry
from elastic_pytorch.operator_link.rounds import Round, parse_round
from elastic_pytorch.operator_link.stream import refusal_of

from scale.connection import Connection, Server

STOP_SECONDS = 0.2
ANSWER_SECONDS, SHORT_SECONDS = 5.0, 1.0  # as in operator_link/stream_link.py

STEPS_PER_SECOND = 8.0
START_SECONDS = 0.6  # from the last member's start to the first step


@dataclass(slots=True)
class Training:
    """The workers of a job without a script: the step of a group is a function of time."""

    round: int = 0  # the newest that a worker has joined
    first: int = 1  # step of that round
    _joined: set[str] = field(default_factory=set)
    _began_at: float | None = None
    _reached: int | None = None  # in this round, after an interruption

    def join(self, worker: str, number: int, size: int, now: float) -> bool:
        """A worker starts in a round; returns whether the group trains after `START_SECONDS`."""
        if number > self.round:
            self._halt(now)
            if self._reached is not None:
                self.first = self._reached + 1
            self.round, self._joined, self._reached = number, set(), None
        if number == self.round:
            self._joined.add(worker)
            if len(self._joined) == size:
                self._began_at = now + START_SECONDS
                return True
        return False

    def leave(self, worker: str, now: float) -> None:
        if worker in self._joined:
            self._halt(now)
            self._joined.discard(worker)

    def step(self, now: float) -> int | None:
        if self._began_at is None:
            return self._reached
        if now < self._began_at:
            return None
        return self.first + int((now - self._began_at) * STEPS_PER_SECOND)

    def _halt(self, now: float) -> None:
        if self._began_at is not None:
            self._reached, self._began_at = self.step(now), None


class Observer(Protocol):
    def told(self, agent: "Agent", round_: Round) -> None: ...
    def heard(self, agent: "Agent", seconds: float, error: str) -> None:
        """A heartbeat was answered after some seconds, or has failed with an error."""


@dataclass(slots=True)
class Job:
    training: Training
    agents: dict[str, "Agent"] = field(default_factory=dict)

    def wake(self, number: int) -> None:
        for agent in self.agents.values():
            if agent.round == number:
                agent.speak()


@dataclass(eq=False, slots=True)
class Agent:
    """The agent of one pod, whose training neither fails nor ends."""

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
    newest: Round = field(default_factory=lambda: Round(0))
    heartbeat_seconds: float = 1.0
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: bool = True
    _carrying_out: asyncio.Task[None] | None = None

    async def run(self) -> None:
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
        retry = Retry(lambda: True)
        while True:
            began = time.monotonic()
            try:
                await self._converse(retry)
            except (OSError, ValueError, KeyError) as error:
                ended = isinstance(error, ConnectionError) and not retry.failing
                if ended and time.monotonic() > began + SHORT_SECONDS:
                    continue  # the operator has ended: another may lead
                word = str(getattr(error, "status", type(error).__name__))
                self.observer.heard(self, 0.0, word)
                await asyncio.sleep(retry.fail(error, self.link.patience))

    async def _converse(self, retry: Retry) -> None:
        await self.link.open("/v1/agent", await self.find_token())
        try:
            while True:
                self.changed, began = False, time.monotonic()
                deadline = began + self.link.patience * ANSWER_SECONDS
                self.link.send(self._describe(), await self.find_token())
                while not (answers := await self._take(deadline)):
                    if time.monotonic() >= deadline:
                        self.link.wait_longer()
                        raise TimeoutError
                kind, answer = answers[-1]
                if kind == "refused":
                    await self._take_news(refusal_of(answer).retry_after or 0.0, lambda: False)
                    continue
                self.heartbeat_seconds = answer["heartbeatSeconds"]
                self.observer.heard(self, time.monotonic() - began, "")
                self.link.patience = 1
                retry.succeed()
                await self._take_news(self.heartbeat_seconds, lambda: self.changed)
        finally:
            self.link.close()

    async def _take_news(self, seconds: float, enough: Callable[[], bool]) -> None:
        due = time.monotonic() + seconds
        while not enough() and time.monotonic() < due:
            await self._take(due)

    async def _take(self, until: float) -> list[tuple[str, Any]]:
        """Handles the next lines, until a time; returns the answers to heartbeats by kind."""
        answers = list[tuple[str, Any]]()
        for line in await self.link.receive(until - time.monotonic()):
            for kind, fields in line.items():
                if kind == "round":
                    self._hear(parse_round(fields))
                elif kind == "refused":
                    refusal = refusal_of(fields)
                    if refusal.status != HTTPStatus.TOO_MANY_REQUESTS:
                        raise refusal
                if kind in ("heartbeat", "refused"):
                    answers.append((kind, fields))
        return answers

    def _hear(self, found: Round) -> None:
        if found.nudge != self.newest.nudge:
            self.changed = True
        newer = found.number > self.newest.number
        self.newest = found if newer else replace(self.newest, nudge=found.nudge)
        if newer:
            self.observer.told(self, found)
        idle = self._carrying_out is None or self._carrying_out.done()
        if self.round < self.newest.number and idle:
            self._carrying_out = asyncio.create_task(self._carry_out())

    async def _carry_out(self) -> None:
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
                if self.job.training.join(self.name, self.round, self.size, time.monotonic()):
                    asyncio.get_running_loop().call_later(START_SECONDS, self.job.wake, self.round)
                self.report("running")

    def _step(self) -> int | None:
        training = self.job.training
        joined = self.round == training.round and self.round
        return training.step(time.monotonic()) if joined else None

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


@cache
def _server(url: str, authorities: str) -> Server:
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 443
    tls = ssl.create_default_context(cadata=authorities)
    return Server(host, socket.gethostbyname(host), port, tls)


def operator_of(pod: Mapping[str, Any]) -> Server:
    """The operator's server by a pod's environment; its name is resolved once."""
    environment = {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}
    url = environment["ELASTIC_PYTORCH_OPERATOR_URL"]
    return _server(url, environment.get("ELASTIC_PYTORCH_OPERATOR_AUTHORITIES", ""))
