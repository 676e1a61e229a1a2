"""A keyed queue with the contract of controller-runtime's: a key is worked on by one worker at a time, and once for many additions."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0


class QueueObserver(Protocol):
    """Is told what happens in a queue."""

    def queued(self) -> None:
        """A key was added."""
        ...

    def retried(self) -> None:
        """A key was added after a failure."""
        ...

    def taken(self, seconds: float) -> None:
        """A key was taken out, this long after it was due."""
        ...

    def worked(self, seconds: float) -> None:
        """The work on a key took this long."""
        ...


class WorkQueue(Generic[Key]):
    """Keys that await work, now or later.

    Args:
        observer: is told what happens.
        begun: whether keys are taken in before `begin`. Without workers nothing would ever take them out.
    """

    def __init__(self, observer: QueueObserver | None = None, *, begun: bool = True) -> None:
        self._observer = observer
        self._begun = begun
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._active: dict[Key, float] = {}  # and when the work on each began
        self._failures: dict[Key, int] = {}
        self._wakeup = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def longest_work_seconds(self) -> float:
        """How long the oldest work has been going on; 0 if there is none."""
        return time.monotonic() - min(self._active.values()) if self._active else 0.0

    def begin(self) -> None:
        """Takes keys in from now on. Those for which there is work already have to be added again."""
        self._begun = True

    def add(self, key: Key, delay_seconds: float = 0.0) -> None:
        """Asks for work on a key after a delay; the earliest time asked for counts."""
        if not self._begun:
            return
        due = time.monotonic() + max(0.0, delay_seconds)
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        if self._observer:
            self._observer.queued()
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._wakeup.set()

    def add_all(self, keys: Iterable[Key]) -> None:
        """Asks for work on keys at once."""
        for key in keys:
            self.add(key)

    def add_after_failure(self, key: Key) -> float:
        """Asks for work on a key that has failed, later each time; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if self._observer:
            self._observer.retried()
        delay = float(min(FIRST_BACKOFF_SECONDS * 2**failures, MAX_BACKOFF_SECONDS))
        self.add(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """Forgets a key's failures."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """Waits for the next key that is due and not worked on. Call `done` when it has been worked on."""
        while True:
            now = time.monotonic()
            postponed = []
            found = None
            while self._heap and self._heap[0][0] <= now:
                entry = heapq.heappop(self._heap)
                due, _, key = entry
                if self._due.get(key) != due:
                    continue  # an earlier time was asked for since
                if key in self._active:
                    postponed.append(entry)
                    continue
                found = key
                break
            for entry in postponed:
                heapq.heappush(self._heap, entry)
            if found is not None:
                waited = now - self._due.pop(found)
                self._active[found] = now
                if self._observer:
                    self._observer.taken(waited)
                return found
            self._wakeup.clear()
            waiting = [due for due, _, key in self._heap if key not in self._active]
            timeout = max(0.0, min(waiting) - now) if waiting else None
            # Not asyncio.wait_for: before Python 3.12 it forgets that it was cancelled if what it waits for has come meanwhile.
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._wakeup.wait()

    def done(self, key: Key) -> None:
        """Ends the work on a key."""
        began = self._active.pop(key, None)
        if self._observer and began is not None:
            self._observer.worked(time.monotonic() - began)
        self._wakeup.set()
