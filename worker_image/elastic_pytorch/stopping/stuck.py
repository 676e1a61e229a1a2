"""Decides whether a stopping worker can still run its handler, by its main thread.

Python runs signal handlers only in the main thread, and not in a call of C.
"""

from dataclasses import dataclass, replace

WAITING_SECONDS = 0.25  # in one call of C, asleep
# In one call of C that may end: a computation, or a CUDA call, which spins while it waits.
COMPUTING_SECONDS = 1.2
# Without a stack: it hangs in the kernel, or in a write to a very slow disk.
SILENT_SECONDS = 20.0
GAP_SECONDS = 1.0  # a longer one between two observations proves nothing about the time between
WAITING_SHARE = 0.1  # of CPU time at most: a waiting thread may poll, and writes its stack

_COLLECTIVES = "torch/distributed/distributed_c10d.py"


@dataclass(frozen=True, slots=True)
class Observation:
    at: float  # of the request for the stack, or now without one; monotonic seconds
    stack: str  # in faulthandler's format, innermost call first; empty: not written
    answered: bool = False  # Python code has run since the last observation
    # A call of the signal's handler in a stack, but for the line number.
    handler: str = ""
    cpu_seconds: float = 0.0  # so far
    copied_bytes: int = 0  # read and written so far
    sleeps: bool = False


@dataclass(frozen=True, slots=True)
class MainThread:
    """The observations of a main thread since its process got the signal."""

    before: str = ""  # the stack at the signal
    # The first and the last of the latest observations in the same call of C.
    first: Observation | None = None
    last: Observation | None = None
    silent: Observation | None = None  # the first one, if none has a stack
    answered: bool = False  # Python code has run since just before the signal
    handler: str = ""
    slept: bool = False  # in all observations since `first`

    def after(self, seen: Observation) -> "MainThread":
        if self.first is not None and not seen.stack and not seen.answered:
            # It is late, as always on a busy machine.
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
        """Whether it has been in one call of C for `patience_seconds`, outside its handler."""
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
            not self._in_handler() or _COLLECTIVES in self.last.stack.partition("\n")[0]
        )

    def _same_call(self, seen: Observation) -> bool:
        return (
            self.last is not None
            and not seen.answered
            and (seen.stack, seen.copied_bytes) == (self.last.stack, self.last.copied_bytes)
            and seen.at - self.last.at <= GAP_SECONDS
        )

    def _in_handler(self) -> bool:
        """Whether the handler is on the stack, as it is without an answer.

        Python runs the lower signal's handler first, so an answer that was requested before the
        signal comes when the handler returns, at the latest.
        """
        assert self.last is not None
        if not self.answered:
            return True
        file, _, function = self.handler.rpartition(" in ")
        frames = (line.strip() for line in self.last.stack.splitlines())
        return bool(self.handler) and any(
            f.startswith(f"{file}, line ") and f.endswith(f" in {function}") for f in frames
        )
