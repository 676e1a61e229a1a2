"""Makes faults, each with its undo, and records them."""

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
    pass


class NotUndone(Exception):
    """A fault could not be undone, so that the cluster is not as it was."""


TROUBLE = (NoTarget, DriverError, aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Target:
    what: str  # such as `kubectl scale epj/char-lm --replicas=4`
    do: Effect  # may return its time, in seconds since the epoch
    undo: Effect | None = None
    jobs: frozenset[str] = frozenset()  # empty: all
    pods: frozenset[str] = frozenset()  # which end
    node: str = ""


Choose = Callable[[Fault], Awaitable[Target]]


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
        raise NoTarget(f"there is no {what}")
    return candidates[number % len(candidates)]


def alone(node_of: Mapping[str, str]) -> set[str]:
    """The pods without another one on their node, so that its faults concern only them."""
    pods = Counter(node_of.values())
    return {pod for pod, node in node_of.items() if pods[node] == 1}


def kill_process(driver: Driver, pod: Mapping[str, Any], pid: int, job: str) -> Target:
    what = f"SIGKILL to process {pid} of {_name(pod)}"
    return Target(what, lambda: driver.kill_process(pod, pid), jobs=frozenset({job}))


def kill_pod(driver: Driver, pod: Mapping[str, Any], job: str) -> Target:
    what, name = f"SIGKILL to the container of {_name(pod)}", _name(pod)
    return Target(what, lambda: driver.kill_pod(pod), jobs=frozenset({job}), pods=frozenset({name}))


def delete_pod(driver: Driver, name: str, job: str, *, force: bool) -> Target:
    what = f"kubectl delete pod {name}{' --grace-period=0 --force' if force else ''}"
    jobs, pods = frozenset({job}), frozenset({name})
    return Target(what, lambda: driver.delete_pod(name, force=force), jobs=jobs, pods=pods)


def scale(driver: Driver, job: str, replicas: int, leaving: Collection[str] = ()) -> Target:
    what = f"kubectl scale epj/{job} --replicas={replicas}"
    jobs, pods = frozenset({job}), frozenset(leaving)
    return Target(what, lambda: driver.scale_job(job, replicas), jobs=jobs, pods=pods)


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


@asynccontextmanager
async def made(target: Target, say: Say) -> AsyncIterator[float]:
    """Makes a fault, yields its time in epoch seconds, and undoes it or raises NotUndone."""
    at = time.time()
    try:
        done = await asyncio.wait_for(target.do(), MAKE_SECONDS)
        yield done if isinstance(done, float) else at
    finally:
        if target.undo:
            await _undo(target, target.undo, say)


async def _undo(target: Target, undo: Effect, say: Say) -> None:
    """Undoes a fault, with retries, as another fault may be in its way."""
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
    """Makes the faults of an act at once, after its pause, appends them to `hits`, undoes them.

    `choose` finds the target of a fault when it is due. `jobs_on` returns the jobs with a pod on a
    node now.
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
