"""Agents at the level of heartbeats: a model of what the worker image does."""

import asyncio
import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from aiohttp import web
from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat
from elastic_pytorch_operator.cluster.interface import PodIdentity

from tests.simulation.groups import Group, Surroundings, Training
from tests.simulation.operators import Door

RETRY_SECONDS, SLOW_RETRY_SECONDS, QUICK_TRIES = 0.2, 2.0, 50
TELL_SECONDS = 0.004  # of a line of the stream, on average
# Until the operator's kernel closes a connection whose other end is silent.
LOST_PEER_SECONDS = 60.0
OWN = {"exitCode": 1, "exception": "ValueError", "message": "ValueError: boom"}


class Agent:
    """The agent of a worker pod.

    Args:
        world: where it is.
        pod: whose agent it is.
        job: its name.
        job_uid: of the job.
        node: where the pod runs.
        training: what its processes do.
    """

    def __init__(
        self,
        world: Surroundings,
        pod: PodIdentity,
        job: str,
        job_uid: str,
        node: str,
        training: Training,
    ) -> None:
        self.pod = pod
        self.job = job
        self.job_uid = job_uid
        self.node = node
        self.training = training
        self.committed = 0
        self.state, self.round, self.newest, self.rank, self.world_size = "ready", 0, 0, 0, 0
        self.group: Group | None = None
        self.reachable = True
        self.shut_out = False  # from the operator alone
        self.lost_at = math.inf  # when it could be heard last
        self.heard_since = 0.0
        self.lies: dict[str, Any] = {}  # what it says in place of what is so
        self.slow_seconds = 0.0  # by which its heartbeats come later, at most
        self.ended = False
        self._world, self._loop, self._dice = world, world.loop, world.dice
        self._restarts, self._taken_at = 0, 0.0
        self._failure: dict[str, Any] | None = None
        self._failed_at = 0.0
        self._told: dict[str, Any] | None = None
        self._nudge: int | None = None
        self._busy = False  # stopping its processes
        self._leaves_at = math.inf
        self._grace = 0.0
        self._leave_seconds = 2.0
        self._door: Door | None = None
        self._stream = ExitStack()
        self._speaker: Any = None
        self._hears: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tries = 0
        self._connect()

    @property
    def part(self) -> tuple[int, int]:
        """Its index, and the last step of which it has its part of the state."""
        return int(self.pod.name.rsplit("-", 2)[1]), self.committed

    # Its stream.

    @property
    def connected(self) -> bool:
        return self._door is not None

    def _connect(self) -> None:
        self._timer = None
        if self.ended or self._door is not None:
            return
        door = self._world.door_for(self)
        if door is None:
            self._retry()
            return
        try:
            self._speaker = door.api.speaker_of(self.pod)
            self._stream.enter_context(door.api.listening_to(self._speaker))
        except web.HTTPException:
            self._retry()
            return
        self._door, self._tries, self.heard_since = door, 0, self._loop.time()
        self.beat()
        if self._door is not None:
            self._hears = self._loop.create_task(self._hear(door))

    def _retry(self) -> None:
        self._tries += 1
        pause = RETRY_SECONDS if self._tries < QUICK_TRIES else SLOW_RETRY_SECONDS
        self._arm(pause * (0.5 + self._dice.random()), self._connect)

    def _arm(self, seconds: float, what: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, what)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def disconnect(self, *, dropped: bool) -> None:
        """Its stream ends: with its connection, or in order."""
        if self._door is None:
            return
        self._door = None
        if self._hears is not None:
            self._hears.cancel()
            self._hears = None
        stream, self._stream = self._stream, ExitStack()
        if dropped:
            stream.__exit__(ConnectionError, ConnectionError(), None)
        else:
            stream.close()
        if not self.ended:
            self._retry()

    def lose_network(self) -> None:
        """It is heard no more; the operator's side of the connection stays open a while."""
        self.reachable, self.lost_at = False, min(self.lost_at, self._loop.time())
        if self.group is not None and self.group.size > 1:
            self.group.lose(self, noticed=False)
        self._cancel_timer()
        if self._hears is not None:
            self._hears.cancel()
            self._hears = None
        if self._door is not None:
            door, stream = self._door, self._stream
            self._door, self._stream = None, ExitStack()

            def close() -> None:
                if door.is_open:
                    stream.__exit__(ConnectionError, ConnectionError(), None)

            self._loop.call_later(LOST_PEER_SECONDS, close)

    def regain_network(self) -> None:
        self.reachable, self.lost_at = True, math.inf
        self._tries = 0
        if self.ended:
            return
        self._retry()
        if self.group is not None:
            self.group.resume()

    async def _hear(self, door: Door) -> None:
        async for news in door.api.news(self._speaker):
            await asyncio.sleep(TELL_SECONDS * self._dice.expovariate(1.0))
            if self._door is not door:
                return
            self._take(json.loads(news))

    def beat(self) -> None:
        """Sends a heartbeat now."""
        if self._door is None or not self.reachable or self.ended:
            return
        try:
            self._speaker = self._door.api.speaker_of(self.pod)
            answer = self._door.api.take(self._speaker, self._fields())
        except (web.HTTPException, MalformedHeartbeat):
            self.disconnect(dropped=False)
            return
        self._leave_seconds = answer["leaveSeconds"]
        late = self.slow_seconds * self._dice.random() if self.slow_seconds else 0.0
        self._arm(answer["heartbeatSeconds"] + late, self.beat)

    def _fields(self) -> dict[str, Any]:
        now, progress = self._world.day_seconds(), None
        group = self.group
        if group is not None and self.state in ("running", "leaving", "succeeded"):
            progress = {"startedAgeSeconds": now - self._taken_at}
            if group.formed_at is not None:
                progress["formedAgeSeconds"] = max(0.0, now - group.formed_at)
                if self.training.reports and group.step >= group.first:
                    progress |= {
                        "step": group.step,
                        "firstStep": group.first,
                        "total": self.training.total,
                    }
        failure = self._failure and {
            **self._failure,
            "rank": self.rank,
            "ageSeconds": max(0.0, now - self._failed_at),
        }
        return {
            "incarnation": self.pod.uid,
            "state": self.state,
            "round": self.round,
            "newest": self.newest,
            "rank": self.rank,
            "worldSize": self.world_size,
            "port": 29501,
            "restarts": self._restarts,
            "progress": progress,
            "failure": failure if self.state == "failed" else None,
            **self.lies,
        }

    # Its rounds.

    def _take(self, news: dict[str, Any]) -> None:
        if self._nudge is not None and news["nudge"] > self._nudge:
            self.beat()
        self._nudge = news["nudge"]
        if news["verdict"]:
            self.end(0 if news["verdict"] == "complete" else 1)
        elif news["round"] > self.newest:
            self.newest, self._told = news["round"], news
            if not self._busy:
                self._follow()

    def _follow(self) -> None:
        """Stops its processes, and takes up the newest round it was told of."""
        news = self._told
        assert news is not None
        group, seconds = self.group, 0.0
        if group is not None:
            orderly = news["orderlySince"] <= self.round and group.trains
            seconds = 0.1 * self._dice.random() if orderly else 0.25 + self._dice.random()
            group.lose(self, noticed=True, within_seconds=3.0 if orderly else 1.0)
            self.group = None
            if self.state != "leaving":
                self._enter("stopping")
        self._busy = True
        self._loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._busy = False
        news = self._told
        if self.ended or news is None:
            return
        self._failure = None
        if news["rank"] is None or news["size"] == 0:
            if self.state == "leaving":
                self.end(143)
            elif self.state != "ready":
                self._enter("ready")
            else:
                self.beat()
            return
        self._restarts += self.round > 0
        self.round, self.rank, self.world_size = news["round"], news["rank"], news["size"]
        self._taken_at = self._world.day_seconds()
        self.group = self._world.group_of(self)
        self._enter(self.state if self.state == "leaving" else "running")
        self.group.join(self)

    def _enter(self, state: str) -> None:
        self.state = state
        self._world.changed()
        self.beat()

    def fail(
        self, failure: dict[str, Any], group: Group | None = None, *, within_seconds: float = 1.0
    ) -> None:
        here = self.group
        if (
            self.ended
            or here is None
            or (group is not None and here is not group)
            or self.state != "running"
        ):
            return
        self._failure, self._failed_at = failure, self._world.day_seconds()
        here.lose(self, noticed=True, within_seconds=within_seconds)
        self.group = None
        self._enter("failed")

    def succeed(self, group: Group) -> None:
        if not self.ended and self.group is group and self.state == "running":
            self._enter("succeeded")

    # Its end.

    def terminate(self, grace_seconds: float) -> None:
        """SIGTERM: it leaves its group, and then ends."""
        if self.ended or self.state == "leaving":
            return
        self._grace = grace_seconds
        if self.group is None:
            self._enter("leaving")
            self._loop.call_later(0.2, self.end, 143)
            return
        self._enter("leaving")
        self._loop.call_later(min(self._leave_seconds, grace_seconds / 2), self.end, 143)

    def end(self, code: int, *, noticed: bool = True) -> None:
        """Its container ends."""
        if self.ended:
            return
        self.ended, self.lost_at = True, min(self.lost_at, self._loop.time())
        if self.group is not None:
            self.group.lose(self, noticed=noticed)
            self.group = None
        self._cancel_timer()
        if noticed:
            self.disconnect(dropped=True)
            self._world.exited(self, code)
        else:
            self.lose_network()
