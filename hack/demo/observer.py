"""Keeps what the cluster says about the job at hand: its status, and what its workers print."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from job import JobStatus
from kubectl import Kubectl
from timeline import Timeline, parse_line

T = TypeVar("T")
# Seldom enough not to take the processors from the training that is shown: log lines carry their own times.
RETRY_SECONDS = 1.0


class ActFailed(Exception):
    """The job did not do what the demo is there to show."""


class Observer:
    """The job as it is now."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.status = JobStatus()
        self.deleted = False
        self.timeline = Timeline()
        self._kubectl = kubectl
        self._change = asyncio.Event()
        self._broken: BaseException | None = None

    async def run(self) -> None:
        """Watch the job, and follow the logs of all its workers, until cancelled."""
        try:
            await self._watch()
        except Exception as error:
            self._broken = error
            self._changed()

    async def _watch(self) -> None:
        followed = set[str]()
        async with asyncio.TaskGroup() as group:
            while True:
                async for type_, job in self._kubectl.watch_job():
                    self.deleted = type_ == "DELETED"
                    self.status = JobStatus.of(job)
                    self._changed()
                    for worker in self.status.workers:
                        if worker.name not in followed:
                            followed.add(worker.name)
                            group.create_task(self._follow(worker.name))
                await asyncio.sleep(RETRY_SECONDS)

    async def until(self, found: Callable[[], T | None], *, seconds: float, what: str, ended: bool = False) -> T:
        """Wait for something to be found; it fails when that takes too long, or can no more come.

        Args:
            found: looks for it; None: not yet.
            seconds: how long to wait.
            what: ends the sentence "waited … for …".
            ended: whether it may still come after the job has ended.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    change = self._change
                    if (it := found()) is not None:
                        return it
                    if self._broken:
                        raise ActFailed(f"Cannot see the job any more: {self._broken!r}")
                    if self.status.state == "Failed":
                        raise ActFailed(f"The job failed while waiting for {what}: {self.status.conditions.get('Failed')}")
                    if self.deleted:
                        raise ActFailed(f"Somebody deleted the job while waiting for {what}.")
                    if self.status.state == "Complete" and not ended:
                        raise ActFailed(f"The training ended while waiting for {what}: try again with more --steps.")
                    await change.wait()
        except TimeoutError:
            raise ActFailed(f"Waited {seconds:.0f} s for {what}, in vain.") from None

    async def _follow(self, pod: str) -> None:
        """Read a worker's log; again and again, since there is none before its container runs, or while it restarts."""
        while not self.deleted:
            async for line in self._kubectl.follow_log(pod):
                if entry := parse_line(pod, line):
                    self.timeline.add(entry)
                    self._changed()
            await asyncio.sleep(RETRY_SECONDS)
            if all(worker.name != pod for worker in self.status.workers):
                return

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
