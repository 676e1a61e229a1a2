"""A line in the terminal that shows the progress of training, where a script is run by hand."""

import atexit
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

REDRAW_SECONDS = 0.1
PACE_WEIGHT = 0.1  # of the newest steps in the pace that is shown
CLEAR_LINE = "\r\x1b[K"


def bar_line(*, step: float, total: float | None, loss: float | None, steps_per_second: float | None, columns: int) -> str:
    """Returns the line, no longer than the terminal is wide. None: not known."""
    facts = [f"{step:.0f}/{total:.0f}" if total else f"step {step:.0f}"]
    if loss is not None:
        facts.append(f"loss {loss:.4g}")
    if steps_per_second:
        facts.append(f"{steps_per_second:.3g} steps/s")
        if total and total > step:
            facts.append(f"{_clock((total - step) / steps_per_second)} left")
    text = "  ".join(facts)
    room = min(40, columns - len(text) - 5)  # two brackets, two spaces, and the last column, which some terminals wrap at
    if total and room >= 10:
        full = int(room * min(1.0, step / total))
        text = f"[{'=' * full}{' ' * (room - full)}]  {text}"
    return text[: max(0, columns - 1)]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class ProgressBar:
    def __init__(
        self,
        terminal: TextIO,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._terminal = terminal
        self._clock = clock
        self._columns = columns
        self._step = 0.0
        self._total: float | None = None
        self._loss: float | None = None
        self._pace: float | None = None
        self._drawn: tuple[float, float] | None = None  # when, and at which step
        self._open = False  # the cursor is behind a line of the bar

    def show(self, step: float | None, total: float | None, loss: float | None) -> None:
        """Updates what is known (None: as before), and draws if it is time to."""
        self._step = self._step if step is None else step
        self._total = self._total if total is None else total
        self._loss = self._loss if loss is None else loss
        now = self._clock()
        done = bool(self._total) and step is not None and self._step >= (self._total or 0)
        if step is None or not (done or self._drawn is None or now - self._drawn[0] >= REDRAW_SECONDS):
            return
        if self._drawn is not None and now > self._drawn[0] and step > self._drawn[1]:
            pace = (step - self._drawn[1]) / (now - self._drawn[0])
            self._pace = pace if self._pace is None else self._pace + PACE_WEIGHT * (pace - self._pace)
        self._drawn = now, self._step
        line = bar_line(
            step=self._step,
            total=self._total,
            loss=self._loss,
            steps_per_second=self._pace,
            columns=self._columns(),
        )
        self._terminal.write(f"{CLEAR_LINE}{line}")
        self._open = True
        if done:
            self.close()
        self._terminal.flush()

    def close(self) -> None:
        """Leaves the line as it is: what is written next begins a new one."""
        if self._open:
            self._open = False
            self._terminal.write("\n")
            self._terminal.flush()


def bar_of_this_process() -> ProgressBar | None:
    """Returns a bar on stderr, if that is a terminal and no other rank draws there."""
    if os.environ.get("RANK", "0") != "0" or not sys.stderr.isatty():
        return None
    bar = ProgressBar(sys.stderr)
    atexit.register(bar.close)
    return bar
