"""Finds processes that must stop but cannot, because their main thread runs no Python code.

A process that does not answer (see `answers`) is not observed: C runs handlers anywhere.
"""

import contextlib
import ctypes
import os
import platform
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from elastic_pytorch.stopping.answers import (
    ANSWER_HEAD,
    ANSWER_SIGNAL,
    MEMORY_NAME,
    STACK_HEAD,
    STACK_SIGNAL,
)
from elastic_pytorch.stopping.stacks import answering, handles, stat_fields
from elastic_pytorch.stopping.stuck import GAP_SECONDS, MainThread, Observation

# Between two observations, at first: the time to write a stack on a busy machine.
OBSERVE_SECONDS = 0.1
MAX_OBSERVE_SECONDS = 0.5  # once a handler has run for long
FIRST_STACK_SECONDS = 0.1  # for the stack just before the signal

_TGKILL = {"x86_64": 234, "aarch64": 131}
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


class StopObserver:
    """Observes the workers of one stop, and before it: later stacks are compared with those.

    Of a worker that does not answer, such as a shell script, the answering descendants count.
    Workers that do not handle the signal just die, and are not observed.
    """

    def __init__(self, workers: Iterable[int], death_signal: signal.Signals) -> None:
        self._processes: list[_Process] = []
        for worker in workers:
            for pid in answering(worker, STACK_SIGNAL, ANSWER_SIGNAL):
                with contextlib.suppress(OSError):
                    if handles(pid, death_signal) and (path := memory_path(pid)):
                        self._processes.append(_Process(pid, path))
        for process in self._processes:
            process.ask_stack()
            # Asked after the signal, a process may hang in its handler, and would never answer.
            process.ask_answer()
        until = time.monotonic() + FIRST_STACK_SECONDS
        while not all(each.has_written() for each in self._processes) and time.monotonic() < until:
            time.sleep(0.001)
        self._since = self._observed_at = time.monotonic()

    def find_stuck(self, patience_seconds: float = 0.0) -> list[tuple[int, str]]:
        """Returns the newly stuck processes, with their main threads' stacks."""
        now = time.monotonic()
        if now - self._observed_at < min(
            MAX_OBSERVE_SECONDS, max(OBSERVE_SECONDS, 0.1 * (now - self._since))
        ):
            return []
        self._observed_at = now
        found = [process for process in self._processes if process.observe(patience_seconds)]
        for process in found:
            process.close()
            self._processes.remove(process)
        return [(process.pid, process.stack) for process in found]

    def close(self) -> None:
        while self._processes:
            self._processes.pop().close()


class _Process:
    def __init__(self, pid: int, memory: str) -> None:
        self.pid = pid
        self._link = memory
        self._memory = os.open(memory, os.O_RDONLY)
        self._asked_at = self._signalled_at = 0.0
        self._read_bytes = os.fstat(self._memory).st_size
        self._thread = MainThread()

    @property
    def stack(self) -> str:
        return self._thread.last.stack if self._thread.last else ""

    def ask_stack(self) -> None:
        self._asked_at = self._signalled_at = time.monotonic()
        self._signal(STACK_SIGNAL)

    def ask_answer(self) -> None:
        self._signal(ANSWER_SIGNAL)

    def has_written(self) -> bool:
        return os.fstat(self._memory).st_size > self._read_bytes

    def observe(self, patience_seconds: float) -> bool:
        written = os.pread(
            self._memory, os.fstat(self._memory).st_size - self._read_bytes, self._read_bytes
        )
        self._read_bytes += len(written)
        text = written.decode(errors="replace")
        answers = [line for line in text.splitlines() if line.startswith(ANSWER_HEAD)]
        _, head, last = text.rpartition(STACK_HEAD)
        stack = last.partition(ANSWER_HEAD)[0].strip() if head else ""
        cpu_seconds, sleeps = _cpu_time(self.pid)
        self._thread = self._thread.after(
            Observation(
                at=self._asked_at if stack else time.monotonic(),
                stack=stack,
                answered=bool(answers),
                handler=answers[-1].removeprefix(ANSWER_HEAD) if answers else "",
                cpu_seconds=cpu_seconds,
                copied_bytes=_copied_bytes(self.pid) - self._read_bytes,
                sleeps=sleeps,
            )
        )
        if answers:
            self.ask_answer()
        if stack:
            self.ask_stack()
        elif time.monotonic() - self._signalled_at > GAP_SECONDS:
            self._signalled_at = time.monotonic()
            self._signal(STACK_SIGNAL)  # the other one may be lost
        return self._thread.stuck(patience_seconds)

    def close(self) -> None:
        os.close(self._memory)

    def _signal(self, number: int) -> None:
        """By default these signals kill, so the process must expect them."""
        with contextlib.suppress(OSError):
            if handles(self.pid, number) and MEMORY_NAME in str(Path(self._link).readlink()):
                signal_main_thread(self.pid, number)


def memory_path(pid: int) -> str:
    """Where a process's memory file can be opened; empty: none. May raise OSError."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if MEMORY_NAME in str(link.readlink()):
                return str(link)
    return ""


def signal_main_thread(pid: int, number: int) -> None:
    """Raises OSError if the process has ended, on a machine that signals only processes."""
    call = _TGKILL.get(platform.machine())
    if call is None:
        # The kernel prefers the main thread, if that is not handling another signal.
        os.kill(pid, number)
    else:
        ctypes.CDLL(None).syscall(call, pid, pid, int(number))


def _cpu_time(pid: int) -> tuple[float, bool]:
    """The main thread's CPU time in seconds, and whether it is asleep."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = stat_fields(f"{pid}/task/{pid}")
        return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS, fields[0] == "S"
    return 0.0, False


def _copied_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        counters = dict(
            line.split(":") for line in Path(f"/proc/{pid}/task/{pid}/io").read_text().splitlines()
        )
        return int(counters["rchar"]) + int(counters["wchar"])
    return 0
