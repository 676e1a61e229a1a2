"""One job as it is now, and the logs of its workers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from elastic_pytorch_client.reading.job_view import Progress, view_job

from elastic_pytorch_local.faults.driver import BROKEN, Driver, Object
from elastic_pytorch_local.faults.steps import StepLog, read_worker_line

T = TypeVar("T")
LOOK_SECONDS = 0.1
RETRY_SECONDS = 0.5


@asynccontextmanager
async def background(*runs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs coroutines beside the context, until it ends; raises the error of a failed one."""
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


class Waited(TimeoutError): ...


async def until(found: Callable[[], T | None], *, seconds: float, what: str) -> T:
    """Returns what is found as soon as it is true; raises Waited if it takes too long."""
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                if it := found():
                    return it
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        if not limit.expired():
            raise
        raise Waited(f"waited {seconds:.0f} s for {what}") from None


class Watcher:
    def __init__(self, driver: Driver, job: str) -> None:
        self._driver, self.name = driver, job
        self.job = view_job({})  # while there is none
        self.deleted = False
        self.pods: dict[str, Object] = {}  # by name
        self.log = StepLog()
        self.broken: Exception | None = None  # why nothing is seen any more

    @property
    def progress(self) -> Progress:
        """The progress by the log, or by the status, which is seconds late, where it is ahead."""
        last, reported = self.log.last(), self.job.progress
        if last is None or last.number < (reported.step or 0):
            return reported
        return Progress(last.number, last.total, last.loss)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._see_job())
                group.create_task(self._see_pods(group))
        except* Exception as errors:
            self.broken = errors.exceptions[0]

    async def until(self, found: Callable[[], T | None], *, seconds: float, what: str) -> T:
        """Like the function `until`; raises Waited also if nothing is seen any more."""

        def look() -> T | None:
            it = found()
            if not it and self.broken:
                raise Waited(f"cannot see the job any more: {self.broken!r}")
            return it

        return await until(look, seconds=seconds, what=what)

    async def _see_job(self) -> None:
        while True:
            with suppress(*BROKEN):
                async for change, job in self._driver.watch_jobs(self.name):
                    self.deleted = change == "DELETED"
                    self.job = view_job({} if self.deleted else job)
            await asyncio.sleep(RETRY_SECONDS)

    async def _see_pods(self, group: asyncio.TaskGroup) -> None:
        followed = set[str]()
        while True:
            self.pods.clear()
            with suppress(*BROKEN):
                async for change, pod in self._driver.watch_pods(self.name):
                    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
                    if change == "DELETED":
                        self.pods.pop(name, None)
                    else:
                        self.pods[name] = pod
                    if uid not in followed and _runs(pod):
                        followed.add(uid)
                        log = group.create_task(self._follow(name, uid))
                        log.add_done_callback(partial(_forget, followed, uid))
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, pod: str, uid: str) -> None:
        """Reads a log, and again from its begin if it ends before its pod."""
        while pod in self.pods and self.pods[pod]["metadata"]["uid"] == uid:
            with suppress(*BROKEN):
                async for line in self._driver.log_lines(pod):
                    for record in read_worker_line(pod, line):
                        self.log.add(record)
            await asyncio.sleep(RETRY_SECONDS)


def _forget(followed: set[str], uid: str, _: asyncio.Task[None]) -> None:
    followed.discard(uid)


def _runs(pod: Object) -> bool:
    states = pod.get("status", {}).get("containerStatuses") or ()
    return any("running" in state.get("state", {}) for state in states)
