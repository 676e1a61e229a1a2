"""Sends the writes of all jobs: some at once, and for each namespace so few that others have slots.

Half of the slots are for namespaces that have no write on their way, so that they find a free one
beside those whose webhooks hang. Namespaces take turns, and so do the jobs of each. No write is
urgent, as rounds need none.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Protocol

from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import ClusterError

logger = logging.getLogger(__name__)

MAX_WRITES = 50  # about what API priority and fairness grants one client beside its others
LEAST_MAX_WRITES = 10
MOST_MAX_WRITES = 150  # reviews of tokens and lists need connections, too
OVERLOADED = 429, Judgement.TROUBLE
OVERLOADED_SECONDS = 1.0  # if the API server does not say how long to wait


class Sender(Hashable, Protocol):
    @property
    def namespace(self) -> str: ...

    def has_write(self) -> bool: ...

    def next_write(self) -> Coroutine[Any, Any, ClusterError | None]: ...


class WriteSlots:
    """After a 429, all wait, as the API server limits a client as a whole (priority and fairness).

    A 429 that a webhook has chosen is a refusal like others.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        max_writes: int = MAX_WRITES,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._max_writes = max_writes
        # By namespace, in the order of their turns.
        self._waiting: OrderedDict[str, OrderedDict[Sender, None]] = OrderedDict()
        self._began: dict[asyncio.Task[ClusterError | None], float] = {}  # on their way
        self._on_their_way: Counter[str] = Counter()  # by namespace
        self._paused_until = 0.0
        self._waking: asyncio.Task[None] | None = None

    @property
    def longest_write_seconds(self) -> float:
        return self._clock() - min(self._began.values()) if self._began else 0.0

    def offer(self, sender: Sender) -> None:
        """A sender that waits already keeps its place."""
        self._place(sender)
        self._fill()

    async def close(self) -> None:
        self._waiting.clear()
        tasks = [*self._began, *([self._waking] if self._waking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _place(self, sender: Sender) -> None:
        senders = self._waiting.setdefault(sender.namespace, OrderedDict())
        if sender.has_write():
            senders.setdefault(sender)
        else:
            senders.pop(sender, None)
        if not senders:
            del self._waiting[sender.namespace]

    def _fill(self) -> None:
        if self._clock() < self._paused_until:
            self._waking = self._waking or asyncio.ensure_future(self._wake())
            return
        while (namespace := self._next()) is not None:
            senders = self._waiting.pop(namespace)
            sender, _ = senders.popitem(last=False)
            if senders:
                self._waiting[namespace] = senders
            task = asyncio.ensure_future(sender.next_write())
            self._began[task] = self._clock()
            self._on_their_way[namespace] += 1
            task.add_done_callback(partial(self._end, namespace))
            self._place(sender)

    def _next(self) -> str | None:
        """The namespace whose turn it is; None: no slot is free for any."""
        if 2 * len(self._began) < self._max_writes:
            return next(iter(self._waiting), None)
        if len(self._began) >= self._max_writes:
            return None
        idle = (name for name in self._waiting if not self._on_their_way[name])
        return next(idle, None)

    def _end(self, namespace: str, task: asyncio.Task[ClusterError | None]) -> None:
        del self._began[task]
        self._on_their_way[namespace] -= 1
        if not self._on_their_way[namespace]:
            del self._on_their_way[namespace]
        if task.cancelled():
            return
        if fault := task.exception():
            logger.error("a write has failed", exc_info=fault)
        elif (error := task.result()) and (error.code, error.judgement) == OVERLOADED:
            seconds = error.retry_after_seconds or OVERLOADED_SECONDS
            self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._fill()

    async def _wake(self) -> None:
        try:
            await self._sleep(self._paused_until - self._clock())
        finally:
            self._waking = None
        self._fill()
