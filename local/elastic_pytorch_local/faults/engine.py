"""Makes faults, each with its undo, and records what was made."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from elastic_pytorch_local.faults.driver import Driver, DriverError
from elastic_pytorch_local.faults.plan import Act, Fault, Kind

T = TypeVar("T")
Effect = Callable[[], Awaitable[object]]
Say = Callable[[str], None]

MAKE_SECONDS = 120.0
UNDO_SECONDS = 600.0
UNDO_PAUSE_SECONDS = 3.0


class NoTarget(Exception):
    """Nothing is there that the fault could be made to."""


class NotUndone(Exception):
    """A fault could not be undone, so that the cluster is not as it was."""


TROUBLE = (NoTarget, DriverError, aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Target:
    what: str  # is done to what
    # Returns when, in seconds since the epoch, or anything else for the time of the call.
    do: Effect
    undo: Effect | None = None
    jobs: frozenset[str] = frozenset()  # empty: all
    pods: frozenset[str] = frozenset()  # that are to end
    node: str = ""


Choose = Callable[[Fault], Awaitable[Target]]


@dataclass(frozen=True, slots=True)
class Hit:
    at: float  # seconds since the epoch
    until: float  # when it had been undone
    kind: Kind
    what: str  # was done to what
    jobs: frozenset[str] = frozenset()  # empty: all
    pods: frozenset[str] = frozenset()  # that are to end by it
    node: str = ""

    def touches(self, job: str) -> bool:
        return not self.jobs or job in self.jobs


def pick(number: int, candidates: Sequence[T], what: str) -> T:
    """The candidate that a random number chooses.

    Raises:
        NoTarget: there is none.
    """
    if not candidates:
        raise NoTarget(f"there is no {what}")
    return candidates[number % len(candidates)]


def alone(node_of: Mapping[str, str]) -> set[str]:
    """The pods that share their node with no other one: a fault of that node is one of theirs alone."""
    crowd = Counter(node_of.values())
    return {pod for pod, node in node_of.items() if crowd[node] == 1}


def kill_process(driver: Driver, pod: Mapping[str, Any], pid: int, job: str) -> Target:
    what = f"SIGKILL to process {pid} of {_name(pod)}"
    return Target(what, lambda: driver.kill_process(pod, pid), jobs=frozenset({job}))


def kill_pod(driver: Driver, pod: Mapping[str, Any], job: str) -> Target:
    """SIGKILL to all processes of a worker, the agent too."""
    what, name = f"SIGKILL to the container of {_name(pod)}", _name(pod)
    return Target(what, lambda: driver.kill_pod(pod), jobs=frozenset({job}), pods=frozenset({name}))


def delete_pod(driver: Driver, name: str, job: str, *, force: bool) -> Target:
    """The deletion of a worker's pod; by force: without grace."""
    what = f"kubectl delete pod {name}{' --grace-period=0 --force' if force else ''}"
    return Target(
        what,
        lambda: driver.delete_pod(name, force=force),
        jobs=frozenset({job}),
        pods=frozenset({name}),
    )


def scale(driver: Driver, job: str, replicas: int, leaving: Collection[str] = ()) -> Target:
    what = f"kubectl scale epj/{job} --replicas={replicas}"
    return Target(
        what,
        lambda: driver.scale_job(job, replicas),
        jobs=frozenset({job}),
        pods=frozenset(leaving),
    )


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


@asynccontextmanager
async def made(target: Target, say: Say) -> AsyncIterator[float]:
    """A fault that is made, and is undone at the end; yields when it was made, in seconds since the epoch.

    Raises:
        NotUndone: it could not be undone.
    """
    at = time.time()
    try:
        done = await asyncio.wait_for(target.do(), MAKE_SECONDS)
        yield done if isinstance(done, float) else at
    finally:
        if target.undo:
            await _undo(target, target.undo, say)


async def _undo(target: Target, undo: Effect, say: Say) -> None:
    """Undoes a fault; again and again, as another fault may be in its way."""
    try:
        async with asyncio.timeout(UNDO_SECONDS):
            while True:
                try:
                    await undo()
                    return
                except TROUBLE as error:
                    say(f"not undone yet: {target.what}: {type(error).__name__} {error}")
                await asyncio.sleep(UNDO_PAUSE_SECONDS)
    except TimeoutError:
        raise NotUndone(target.what) from None


async def perform(
    act: Act,
    kinds: Mapping[str, Kind],
    choose: Choose,
    hits: list[Hit],
    say: Say,
    jobs_on: Callable[[str], frozenset[str]],
) -> None:
    """Makes the faults of an act at once, after its pause; returns when all are undone.

    `hits` gets what was made.

    `choose` finds the target of a fault when it is due. `jobs_on` returns the jobs that have a pod
    on a node now: those of a fault's node are read before and after it.

    Raises:
        NotUndone: one could not be undone.
    """
    await asyncio.sleep(act.pause_seconds)
    await asyncio.gather(
        *(_make(fault, kinds[fault.kind], choose, hits, say, jobs_on) for fault in act.faults)
    )


async def _make(
    fault: Fault,
    kind: Kind,
    choose: Choose,
    hits: list[Hit],
    say: Say,
    jobs_on: Callable[[str], frozenset[str]],
) -> None:
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
    hits.append(Hit(at, time.time(), kind, target.what + missed, jobs, target.pods, target.node))
