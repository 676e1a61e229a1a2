"""Groups of agents: a group steps while all of its members run in its round.

What it has reached is a function of the time, so that no step is an event.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.simulation.clock import Due

if TYPE_CHECKING:
    from tests.simulation.agents import Agent
    from tests.simulation.operators import Door

ECHO = {
    "exitCode": 1,
    "exception": "RuntimeError",
    "message": "RuntimeError: gloo: Connection closed by peer",
}


class Surroundings(Protocol):
    """What agents need of the world."""

    loop: asyncio.AbstractEventLoop
    dice: random.Random

    def day_seconds(self) -> float:
        """Seconds since the world's begin, skipped ones included."""
        ...

    def door_for(self, agent: "Agent") -> "Door | None": ...

    def after(self, seconds: float, what: Callable[[], None]) -> Due:
        """Has something happen in a number of seconds, skipped ones included."""
        ...

    def changed(self) -> None:
        """Something is not as it was."""
        ...

    def group_of(self, agent: "Agent") -> "Group":
        """The group of an agent's round."""
        ...

    def exited(self, agent: "Agent", code: int) -> None: ...

    def formed(self, group: "Group") -> None: ...

    def completed(self, group: "Group") -> None: ...


@dataclass
class Training:
    total: int
    step_seconds: float
    reports: bool = True
    saved: int = 0
    unit: int = 1


def kept_step(parts_there: Iterable[tuple[int, int]], unit: int) -> int:
    """The newest step whose state some workers have, each worker of a unit a part of it.

    Args:
        parts_there: the index of each worker, and the last step whose state it has.
        unit: how many workers have a state together.
    """
    units: dict[int, dict[int, int]] = {}
    for index, step in parts_there:
        parts = units.setdefault(index // unit, {})
        parts[index] = max(parts.get(index, 0), step)
    return max((min(parts.values()) for parts in units.values() if len(parts) == unit), default=0)


@dataclass(eq=False)
class Group:
    """The members of a round that have taken it up."""

    job_uid: str
    number: int
    size: int
    training: Training
    world: Surroundings
    members: list["Agent"] = field(default_factory=list)
    first: int = 0
    formed_at: float | None = None
    stopped_at: float | None = None
    ends: Due | None = None

    @property
    def trains(self) -> bool:
        return self.formed_at is not None and self.stopped_at is None

    @property
    def step(self) -> int:
        if self.formed_at is None:
            return 0
        until = self.stopped_at if self.stopped_at is not None else self.world.day_seconds()
        done = math.floor((until - self.formed_at) / self.training.step_seconds + 1e-6)
        return min(self.training.total, self.first - 1 + done)

    @property
    def seconds_left(self) -> float:
        """Until its last step."""
        assert self.formed_at is not None
        whole = (self.training.total - self.first + 1) * self.training.step_seconds
        return max(0.0, self.formed_at + whole - self.world.day_seconds())

    def join(self, agent: "Agent") -> None:
        self.members.append(agent)
        if len(self.members) == self.size and self.stopped_at is None:
            self.world.loop.call_later(0.2 + self.world.dice.random() / 2, self._form)

    def _form(self) -> None:
        if self.stopped_at is not None or self.formed_at is not None:
            return
        if not all(member.group is self and member.reachable for member in self.members):
            return
        kept = kept_step((member.part for member in self.members), self.training.unit)
        self.first = max(kept, self.training.saved) + 1
        self.formed_at = self.world.day_seconds()
        self.world.formed(self)
        self._wait_for_end()
        for member in self.members:
            member.beat()

    def _wait_for_end(self) -> None:
        self.ends = self.world.after(self.seconds_left + 1e-6, self._end)

    def _end(self) -> None:
        self.stop()
        self.training.saved = self.training.total
        self.world.completed(self)
        for member in list(self.members):
            self.world.loop.call_later(0.3 * self.world.dice.random(), member.succeed, self)

    def stop(self) -> None:
        if self.stopped_at is None:
            reached = self.step
            self.stopped_at = self.world.day_seconds()
            for member in self.members:
                member.committed = max(member.committed, reached)
            if self.ends is not None:
                self.ends.cancel()

    def resume(self) -> None:
        """The connections of its members bear again, before anything has ended a member."""
        whole = all(
            m.group is self and m.reachable and m.state in ("running", "leaving")
            for m in self.members
        )
        if not whole or len(self.members) < self.size:
            return
        if self.formed_at is None:  # it went on trying to connect
            self.stopped_at = None
            self._form()
        elif self.stopped_at is not None:
            self.formed_at += self.world.day_seconds() - self.stopped_at
            self.stopped_at = None
            self._wait_for_end()

    def lose(self, agent: "Agent", *, noticed: bool, within_seconds: float = 1.0) -> None:
        """A member's processes stop; the others fail if their connections close, or hang."""
        self.stop()
        if noticed:
            for member in self.members:
                if member is not agent:
                    self.world.loop.call_later(
                        0.05 + within_seconds * self.world.dice.random(), member.fail, ECHO, self
                    )
