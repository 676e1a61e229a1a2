"""Tries the writes of one plan: each failure is noted and keeps no other write from being tried; all are waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.planning.failed_writes import REFUSED_SECONDS, FailedWrite, FailedWrites, note_failure

MAX_PARALLEL_WRITES = 50
OVERLOADED = 429

Write = Callable[[], Awaitable[None]]


class Attempts:
    """The writes of one plan, and what has become of them.

    Once the API server gives no answer, or asks to wait, no further write is sent: each would take as long as the first.

    Args:
        before: the writes that have failed before; those that may not be tried again yet are not.
        clock: monotonic seconds.

    Attributes:
        failed: the writes that are asked for and have not succeeded.
        errors: of this plan's tries.
        malformed: what the API server finds wrong with the pods themselves.
        wrote: something has been written.
    """

    def __init__(self, before: FailedWrites, clock: Callable[[], float]) -> None:
        self._before = before
        self._clock = clock
        self._halted_by: ClusterError | None = None
        self._gate = asyncio.Semaphore(MAX_PARALLEL_WRITES)
        self.failed: dict[str, FailedWrite] = {}
        self.errors: list[ClusterError] = []
        self.malformed = ""
        self.wrote = False

    async def attempt(self, key: str, *writes: Write, refused_seconds: float = REFUSED_SECONDS) -> None:
        """Tries writes that stand or fall together: the first one alone, as what is refused once is not asked for a hundred times.

        Args:
            key: what they are known by from one plan to the next.
            writes: raise ClusterError if they fail.
            refused_seconds: until they are tried again if they are refused.
        """
        before = self._before.get(key)
        if before is not None and self._clock() < before.retry_at:
            self.failed[key] = before
            return
        errors = await self._try(writes[:1]) or await self._try(writes[1:])
        if not errors:
            return
        # A refusal is more informative than the trouble beside it.
        error = min(errors, key=lambda error: error.judgement is Judgement.TROUBLE)
        if error.judgement is Judgement.MALFORMED:
            self.malformed = str(error)
        self.failed[key] = note_failure(
            before,
            error.judgement,
            error.words,
            self._clock(),
            refused_seconds=refused_seconds,
            retry_after_seconds=max(error.retry_after_seconds for error in errors),
        )

    async def _try(self, writes: Sequence[Write]) -> list[ClusterError]:
        """Tries writes in parallel; returns the errors of those that have failed."""
        results = await asyncio.gather(*(self._try_one(write) for write in writes), return_exceptions=True)
        errors = []
        for result in results:
            if isinstance(result, ClusterError):
                errors.append(result)
            elif result is not None:  # no error of the API server: a fault of the operator's own
                raise result
        return errors

    async def _try_one(self, write: Write) -> ClusterError | None:
        async with self._gate:
            if self._halted_by is not None:
                return self._halted_by
            try:
                await write()
            except ClusterError as error:
                self.errors.append(error)
                if error.code in (0, OVERLOADED):
                    self._halted_by = error
                return error
            self.wrote = True
            return None
