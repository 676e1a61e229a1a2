"""Decides whether a worker that was told to stop after a loss can still run its handler, from observations of its main thread.

Signal handlers of Python run only in the main thread, and only between two of Python's own
instructions. A main thread in a collective whose peer is lost does not get there: under NCCL it
waits in C until it is killed.
"""

from dataclasses import dataclass, replace

WAITING_SECONDS = 0.25  # in one call of C, asleep: what it waits for has not come since the loss
# In one call of C that may end: a computation, or a CUDA call, which spins while it waits.
COMPUTING_SECONDS = 1.2
# Without a stack: it hangs in the kernel, or in a write to a disk that is very slow.
SILENT_SECONDS = 20.0
GAP_SECONDS = 1.0  # between two observations: a longer gap proves nothing about the time between
WAITING_SHARE = 0.1  # of CPU time at most: a waiting thread may poll, and writes its stack

_COLLECTIVES = "torch/distributed/distributed_c10d.py"


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of a process's main thread."""

    at: float  # when the stack was asked for, or now if there is none; monotonic seconds
    stack: str  # as faulthandler writes it, innermost call first; empty: it has not been written
    answered: bool = False  # Python code has run in it since the last observation
    # How a call of the signal's handler shows in a stack, but for the line number.
    handler: str = ""
    cpu_seconds: float = 0.0  # used so far
    copied_bytes: int = 0  # read and written so far
    sleeps: bool = False  # it waits for something


@dataclass(frozen=True, slots=True)
class MainThread:
    """What observations have found of a main thread since its process was told to stop."""

    before: str = ""  # the stack at the moment of the signal
    # Of the latest observations that all found it in the same call of C.
    first: Observation | None = None
    last: Observation | None = None
    silent: Observation | None = None  # the first observation, if none has ever found a stack
    answered: bool = False  # Python code has run since just before the signal
    handler: str = ""
    slept: bool = False  # all observations since `first` have found it asleep

    def after(self, seen: Observation) -> "MainThread":
        if self.first is not None and not seen.stack and not seen.answered:
            # It is late: on a busy machine, each time.
            return replace(self, slept=self.slept and seen.sleeps)
        first = self.first if self._same_call(seen) else seen if seen.stack else None
        return replace(
            self,
            before=self.before or seen.stack,
            first=first,
            last=seen,
            silent=None
            if seen.stack or seen.answered
            else self.silent or (seen if self.last is None else None),
            answered=self.answered or seen.answered,
            handler=seen.handler if seen.answered else self.handler,
            slept=seen.sleeps and (self.slept or first is seen),
        )

    def stuck(self, patience_seconds: float = 0.0) -> bool:
        """Whether it has been in one call of C for `patience_seconds`, and is not running its handler."""
        if self.last is None:
            return False
        if self.first is None:
            return self.silent is not None and self.last.at - self.silent.at >= SILENT_SECONDS
        seconds = self.last.at - self.first.at
        if not self.answered and self.last.stack == self.before:
            cpu_seconds = self.last.cpu_seconds - self.first.cpu_seconds
            waits = self.slept and cpu_seconds <= WAITING_SHARE * seconds
            return seconds >= max(patience_seconds, WAITING_SECONDS if waits else COMPUTING_SECONDS)
        return seconds >= max(patience_seconds, COMPUTING_SECONDS) and (
            not self._in_handler() or waits_for_peers(self.last.stack)
        )

    def _same_call(self, seen: Observation) -> bool:
        return (
            self.last is not None
            and not seen.answered
            and (seen.stack, seen.copied_bytes) == (self.last.stack, self.last.copied_bytes)
            and seen.at - self.last.at <= GAP_SECONDS
        )

    def _in_handler(self) -> bool:
        """Whether the handler is on the stack.

        It is if there was no answer. One that was asked for before the signal comes when the
        handler returns, at the latest: Python runs the handler of the lower signal first.
        """
        assert self.last is not None
        if not self.answered:
            return True
        file, _, function = self.handler.rpartition(" in ")
        frames = (line.strip() for line in self.last.stack.splitlines())
        return bool(self.handler) and any(
            f.startswith(f"{file}, line ") and f.endswith(f" in {function}") for f in frames
        )


def waits_for_peers(stack: str) -> bool:
    """Whether the innermost Python call is one of torch's collectives."""
    return _COLLECTIVES in next(iter(stack.splitlines()), "")
