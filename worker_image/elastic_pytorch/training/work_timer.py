"""How long a rank works in a step, apart from its waits for the other ranks.

Faster ranks wait in the all-reduce of the gradients for the slowest, so only the time without this
wait shows which rank is slow. The wait is between two callbacks of autograd's engine. The first is
queued as backward begins, so it runs before the callback in which DistributedDataParallel waits. It
queues the second one, which runs after that.

The callbacks take a tenth of a millisecond. So only ten steps a second are measured, each from the
wait of the step before to its own.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from elastic_pytorch.progress.report import has_agent, report

# Between two reports, and between the beginnings of two measured steps.
REPORT_SECONDS = 0.1
MAX_UNREAD = 64  # steps whose times a GPU has not measured yet

Mark = Any  # seconds, or an event on a GPU's stream


class WorkTimer:
    """Measures how long this rank works in each step, so that the operator finds slow ranks.

    It is for models in DistributedDataParallel, and does nothing without an agent. Waits for other
    ranks count as work, except in `backward`. On a GPU the times are those of the stream.

    Args:
        clock: a function that returns seconds, from any zero.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._active = has_agent()
        # The GPU whose stream does the work; None: this process itself.
        self._device: torch.device | None = None
        self._watched = 2  # steps to come: of the first, only the end
        self._measured_at = float("-inf")  # when the last measured step began
        # Where the current stretch of work began; None: in a wait, or unknown.
        self._begun: Mark | None = None
        self._stretches: list[tuple[Mark, Mark]] = []  # in this step
        # Of measured steps that are over.
        self._unread: deque[list[tuple[Mark, Mark]]] = deque(maxlen=MAX_UNREAD)
        self._seconds: list[float] = []  # of work since the last report
        self._steps = 0  # since then
        self._reported_at: float | None = None

    def watch(self, loss: torch.Tensor) -> None:
        """Measures the next `loss.backward()`; call it with that tensor before each."""
        if not self._active or not self._watched or not loss.requires_grad:
            return
        self._device = loss.device if loss.device.type == "cuda" else None
        with self._safely():
            loss.register_hook(lambda _: self._queue(self._end_work))  # type: ignore[no-untyped-call]

    def end_step(self) -> None:
        """Ends a step; call it after each."""
        if not self._active:
            return
        with self._safely():
            now = self._clock()
            self._choose_next(now)
            self._read()
            self._report(now)

    def _choose_next(self, now: float) -> None:
        """Keeps a step's measurement, and decides whether to measure the next one."""
        measured = self._watched == 1
        if self._watched == 2:
            self._watched, self._measured_at = 1, now
        elif measured:
            self._watched = 0
            if self._stretches:
                self._unread.append(self._stretches)
        self._stretches = []
        if not self._watched and now - self._measured_at >= REPORT_SECONDS:
            if measured:  # its end is the next one's beginning
                self._watched, self._measured_at = 1, now
            else:
                self._watched, self._begun = 2, None

    def _read(self) -> None:
        while self._unread and _is_over(self._unread[0][-1][1]):
            self._seconds.append(sum(_seconds(begin, end) for begin, end in self._unread.popleft()))

    def _report(self, now: float) -> None:
        if self._reported_at is None:
            self._reported_at = now
            return
        self._steps += 1
        if now - self._reported_at >= REPORT_SECONDS and self._seconds:
            report(
                work_seconds=median(self._seconds),
                step_seconds=(now - self._reported_at) / self._steps,
            )
            self._reported_at, self._steps = now, 0
            self._seconds.clear()

    def _end_work(self) -> None:
        """Runs when all gradients are computed."""
        with self._safely():
            if self._begun is not None:
                self._stretches.append((self._begun, self._mark()))
                self._begun = None
            self._queue(self._begin_work)

    def _begin_work(self) -> None:
        """Runs when the gradients are reduced."""
        with self._safely():
            self._begun = self._mark()

    def _queue(self, callback: Callable[[], None]) -> None:
        with self._safely():
            torch.autograd.Variable._execution_engine.queue_callback(callback)

    def _mark(self) -> Mark:
        if self._device is None:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    @contextlib.contextmanager
    def _safely(self) -> Any:
        # No training ends because it cannot be measured. With compiled autograd, for example, there
        # is no queue.
        try:
            yield
        except Exception:
            self._active = False


def _is_over(mark: Mark) -> bool:
    return isinstance(mark, float) or bool(mark.query())


def _seconds(begin: Mark, end: Mark) -> float:
    return end - begin if isinstance(end, float) else float(begin.elapsed_time(end)) / 1000
