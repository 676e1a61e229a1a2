"""A keyed queue with controller-runtime's contract: one worker at a time, once for many additions.

In addition, urgent keys go first, and a key may rest after work on it, so that one that costs much
leaves time for the others.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from elastic_pytorch_operator.monitoring.metrics import Metrics

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
SOON_SECONDS = 0.5
URGENT_IN_A_ROW = 8  # then one that is not urgent, which may have waited for long, has its turn
SPARE_ENTRIES = 16  # of the heap, for keys that have become due earlier than their entries say
ENTRIES_PER_KEY = 3  # of the heap, at most: two are in force


class _Due(NamedTuple):
    at: float = math.inf
    urgent_at: float = math.inf


NEVER = _Due()


class WorkQueue(Generic[Key]):
    """`begun`: whether to take keys in before `begin`; without workers, nothing takes them out."""

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        begun: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._begun = begun
        self._clock = clock
        self._due: dict[Key, _Due] = {}  # of each key that awaits work
        # Keys that are due, not worked on and not at rest, by whether they are urgent.
        self._ready: dict[bool, OrderedDict[Key, None]]
        self._ready = {True: OrderedDict(), False: OrderedDict()}
        self._ready_count = asyncio.Semaphore(0)
        self._urgent_in_a_row = 0
        self._active: dict[Key, float] = {}  # with the start of their work
        self._resting: set[Key] = set()
        self._heap: list[tuple[float, int, Key]] = []  # added with a delay
        self._order = itertools.count()
        self._waker: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    @property
    def has_ready(self) -> bool:
        return not self._ready_count.locked()

    @property
    def longest_work_seconds(self) -> float:
        return self._clock() - min(self._active.values()) if self._active else 0.0

    def begin(self) -> None:
        """Keys that had work before have to be added again."""
        self._begun = True

    def add(self, key: Key, delay_seconds: float = 0.0, *, urgent: bool | None = None) -> None:
        """Asks for work on a key after a delay; the earliest time asked for counts.

        Args:
            urgent: it goes before keys that are not, from the earliest time that was asked for as
                urgent; None: if it is due soon.
        """
        if urgent is None:
            urgent = delay_seconds < SOON_SECONDS
        if not self._begun:
            return
        now = self._clock()
        due = now + max(0.0, delay_seconds)
        known = self._due.get(key, NEVER)
        asked = _Due(min(known.at, due), min(known.urgent_at, due) if urgent else known.urgent_at)
        if asked == known:
            return
        self._due[key] = asked
        if due < known.at:
            self._metrics.queued()
        if due <= now:
            self._release(key)
            return
        if len(self._heap) >= ENTRIES_PER_KEY * len(self._due) + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._wake_at(due, now)

    def add_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.add(key)

    def add_after_failure(self, key: Key) -> float:
        """Asks for another try, later each time; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._metrics.retried()
        delay = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 16), MAX_BACKOFF_SECONDS)
        self.add(key, delay, urgent=False)
        return delay

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """Waits for the next key that is due and not worked on; call `done` after the work."""
        await self._ready_count.acquire()
        others_turn = self._ready[False] and self._urgent_in_a_row >= URGENT_IN_A_ROW
        urgent = bool(self._ready[True]) and not others_turn
        self._urgent_in_a_row = self._urgent_in_a_row + 1 if urgent else 0
        key, _ = self._ready[urgent].popitem(last=False)
        now = self._clock()
        waited = now - self._due.pop(key).at
        self._active[key] = now
        self._metrics.taken(waited)
        return key

    def done(self, key: Key, rest_seconds: float = 0.0) -> None:
        self._metrics.worked(self._clock() - self._active.pop(key))
        if rest_seconds > 0:
            self._resting.add(key)
            asyncio.get_running_loop().call_later(rest_seconds, self._end_rest, key)
        else:
            self._end_rest(key)

    def _end_rest(self, key: Key) -> None:
        self._resting.discard(key)
        if key in self._due and self._due[key].at <= self._clock():
            self._release(key)

    def _release(self, key: Key) -> None:
        """Readies a due key; if it is worked on or rests, that does so at its end."""
        if key in self._active or key in self._resting:
            return
        urgent = self._due[key].urgent_at <= self._clock()
        if not any(key in ready for ready in self._ready.values()):
            self._ready_count.release()
        self._ready[not urgent].pop(key, None)
        self._ready[urgent].setdefault(key)

    def _is_current(self, entry: tuple[float, int, Key]) -> bool:
        """Not if its key was added again for an earlier time."""
        due, _, key = entry
        return due in self._due.get(key, NEVER)

    def _wake_at(self, due: float, now: float) -> None:
        if due >= self._wakes_at:
            return
        if self._waker is not None:
            self._waker.cancel()
        self._waker = asyncio.get_running_loop().call_later(due - now, self._wake)
        self._wakes_at = due

    def _wake(self) -> None:
        self._waker, self._wakes_at = None, math.inf
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_current(entry):
                self._release(entry[2])
        if self._heap:
            self._wake_at(self._heap[0][0], now)
