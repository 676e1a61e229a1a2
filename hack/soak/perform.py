"""Makes the faults of an act, and records them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from elastic_pytorch_local.faults.driver import DriverError
from measure.engine import MAKE_SECONDS, TROUBLE, Say, Target, made

from soak.plan import KINDS, Act, Fault, Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hit:
    at: float  # seconds since the epoch
    until: float  # the end of the undo
    kind: Kind
    what: str
    jobs: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    node: str = ""

    def touches(self, job: str) -> bool:
        return not self.jobs or job in self.jobs


def pick(number: int, candidates: Sequence[T], what: str) -> T:
    if not candidates:
        raise DriverError(f"there is no {what}")
    return candidates[number % len(candidates)]


async def perform(
    act: Act,
    choose: Callable[[Fault], Awaitable[Target]],
    hits: list[Hit],
    say: Say,
    jobs_on: Callable[[str], frozenset[str]],
) -> None:
    """Makes the faults of an act at once, after its pause, appends them to `hits`, undoes them.

    `choose` finds the target of a fault when it is due. `jobs_on` returns the jobs with a pod on a
    node now.
    """

    async def make(fault: Fault) -> None:
        at, missed = time.time(), ""
        try:
            target = await asyncio.wait_for(choose(fault), MAKE_SECONDS)
        except TROUBLE as error:
            say(f"{fault.kind} not made: {error}")
            return
        say(f"{target.what}{f' for {fault.seconds:.0f} s' if fault.seconds else ''}")
        try:
            async with made(target, say):
                await asyncio.sleep(fault.seconds)
        except TROUBLE as error:
            missed = f" (perhaps not: {type(error).__name__} {error})"
        jobs = target.jobs | jobs_on(target.node) if target.node and target.jobs else target.jobs
        what, kind = target.what + missed, KINDS[fault.kind]
        hits.append(Hit(at, time.time(), kind, what, jobs, target.pods, target.node))

    await asyncio.sleep(act.pause_seconds)
    await asyncio.gather(*map(make, act.faults))
