"""Makes faults, each with its undo."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_local.faults import driver
from elastic_pytorch_local.faults.driver import Driver

Effect = Callable[[], Awaitable[object]]
Say = Callable[[str], None]

MAKE_SECONDS = 120.0
UNDO_SECONDS = 600.0
UNDO_PAUSE_SECONDS = 3.0


class NotUndone(Exception):
    """A fault could not be undone, so that the cluster is not as it was."""


TROUBLE = driver.TROUBLE


@dataclass(frozen=True, slots=True)
class Target:
    what: str  # such as `kubectl scale epj/char-lm --replicas=4`
    do: Effect  # may return its time, in seconds since the epoch
    undo: Effect | None = None
    jobs: frozenset[str] = frozenset()  # empty: all
    pods: frozenset[str] = frozenset()  # which end
    node: str = ""


def kill_process(driver: Driver, pod: Mapping[str, Any], pid: int, job: str) -> Target:
    what = f"SIGKILL to process {pid} of {_name(pod)}"
    return Target(what, lambda: driver.kill_process(pod, pid), jobs=frozenset({job}))


def kill_pods(
    driver: Driver, pods: Sequence[Mapping[str, Any]], jobs: frozenset[str] = frozenset()
) -> Target:
    found = [_name(pod) for pod in pods]

    async def kill() -> None:
        await asyncio.gather(*(driver.kill_pod(pod) for pod in pods))

    what = f"SIGKILL to the containers of {', '.join(found)}"
    return Target(what, kill, jobs=jobs, pods=frozenset(found))


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
