"""The operator's replicas of a simulated world: real ones but for kopf, sockets, TLS."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_operator.agents.http_api import AgentApi
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import MutableManifest
from elastic_pytorch_operator.cluster.clocks import TimeOfDay
from elastic_pytorch_operator.informer.cache import WATCHES, Cache
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.runtime.replica import LeadershipLostError, Replica
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey

from tests.simulation.api_server import SYSTEM, Connection, Server, is_selected

SLICE = "elastic-pytorch-operator-ipv4"
WATCH_SECONDS = 0.005  # that a change takes to a watcher, on average
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0  # as in kopf_watches
KINDS = (names.KIND, "Pod", "Node", kueue.WORKLOAD)
RequestWork = Callable[[Iterable[JobKey]], None]


class Watches:
    """A replica's watches, as kopf has them: they report in order, and begin again.

    Args:
        server: is watched.
        connection: of the replica.
        dice: decide how long changes take.
    """

    def __init__(self, server: Server, connection: Connection, dice: random.Random) -> None:
        self._server, self._connection, self._dice = server, connection, dice
        self._loop = asyncio.get_running_loop()
        # Something has changed, or the watch is to end.
        self._news = {kind: asyncio.Event() for kind in KINDS}
        self._broken: set[str] = set()
        self._stalled: set[str] = set()

    def break_off(self, kinds: tuple[str, ...] = KINDS) -> None:
        """Ends watches with an error, such as 410 Gone."""
        for kind in kinds:
            self._stalled.discard(kind)
            self._broken.add(kind)
            self._news[kind].set()

    def stall(self, kind: str) -> None:
        """Has a watch report nothing until it breaks."""
        self._stalled.add(kind)

    async def watch(self, cache: Cache, request_work: RequestWork) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                tasks.create_task(self._keep_watching(kind, cache, request_work))

    async def _keep_watching(self, kind: str, cache: Cache, request_work: RequestWork) -> None:
        pause, ended = MIN_PAUSE_SECONDS, False
        while True:
            if ended:
                cache.watch_lag.begins_again(self._loop.time())
            began = self._loop.time()
            if not (self._connection.is_cut or self._server.trouble.share >= 1.0):
                await self._watch(kind, cache, request_work)
            ended = True
            cache.watch_lag.fails(WATCHES[kind], "", self._loop.time())
            if self._loop.time() > began + 120.0:
                pause = MIN_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _watch(self, kind: str, cache: Cache, request_work: RequestWork) -> None:
        changes: deque[tuple[float, str | None, MutableManifest]] = deque()
        due, news = self._loop.time(), self._news[kind]
        self._broken.discard(kind)

        def take(found_kind: str, change: str | None, found: MutableManifest) -> None:
            nonlocal due
            if found_kind == kind and is_selected(kind, found):
                lag = (
                    WATCH_SECONDS * self._dice.expovariate(1.0)
                    + self._server.trouble.watch_seconds * self._dice.random()
                )
                due = max(due, self._loop.time() + lag)
                changes.append((due, change, found))
                news.set()

        for found in self._server._list(kind):
            take(kind, None, dict(found))
        self._server.watch(take)
        try:
            while kind not in self._broken:
                while changes and changes[0][0] <= self._loop.time() and kind not in self._stalled:
                    _, change, found = changes.popleft()
                    keys = cache.observe_change(kind, change, found, self._loop.time())
                    request_work(sorted(keys))
                if changes and kind not in self._stalled:
                    await asyncio.sleep(changes[0][0] - self._loop.time())
                else:
                    news.clear()
                    await news.wait()
        finally:
            self._server.unwatch(take)


@dataclass(frozen=True)
class Door:
    """Where agents reach a replica that leads."""

    api: AgentApi
    process: "Process"

    @property
    def is_open(self) -> bool:
        return self.process.door is self


class Process:
    """A process with a replica, and another one after each that no longer leads.

    Args:
        server: the API server.
        name: of its pod.
        address: of its pod.
        node: where it runs.
        dice: its own.
        time: the time of day.
        on_closed: is called when a door closes, with it.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        address: str,
        node: str,
        dice: random.Random,
        time: Callable[[], datetime],
        on_closed: Callable[[Door], None],
    ) -> None:
        self.name, self.address, self.node = name, address, node
        self.connection = Connection(server, name, dice)
        self.watches = Watches(server, self.connection, dice)
        self.door: Door | None = None
        self.suspended_seconds = 0.0  # by the clock of the election more time has passed
        self._server, self._time, self._on_closed = server, time, on_closed
        self._metrics = Metrics()
        self.replica: Replica | None = None
        self.task = asyncio.get_running_loop().create_task(self._run(), name=name)

    @property
    def leads(self) -> bool:
        return self.replica is not None and self.replica.leading and not self.connection.is_dead

    def die(self) -> None:
        self.connection.is_dead = True
        self._close_door()
        self.task.cancel()

    async def _run(self) -> None:
        endpoint = Endpoint(self.name, f"uid-{self.name}", self.address, 8443, self.node)
        settings = ReplicaSettings(
            "http://operator", "127.0.0.1", 0, 0, SYSTEM, self.name, endpoint, kueue=True
        )
        loop = asyncio.get_running_loop()
        while True:
            self.connection.deleted.clear()
            self.replica = Replica(
                self.connection,  # type: ignore[arg-type]
                settings,
                self.watches.watch,
                metrics=self._metrics,
                time_of_day=TimeOfDay(own_time=self._time),
                clock=lambda: loop.time() + self.suspended_seconds,
                listen=self._listen,
            )
            try:
                await self.replica.work(asyncio.Event())
            except LeadershipLostError:
                continue

    @asynccontextmanager
    async def _listen(self, api: AgentApi, *_: Any) -> AsyncIterator[None]:
        watching = asyncio.create_task(api.hearing.watch())
        if not self.connection.is_dead:
            self.door = Door(api, self)
        try:
            yield
        finally:
            watching.cancel()
            self._close_door()

    def _close_door(self) -> None:
        if self.door is not None:
            door, self.door = self.door, None
            self._on_closed(door)
