"""The Python stacks of workers that hang, written to their stderr, and so to the pod's log.

A worker has faulthandler answer a signal: it writes the stacks of all threads from within the signal's handler, wherever the worker is
stuck, in C code too. The signal is a real-time one that neither torch nor Python uses, and scripts hardly ever: SIGUSR1 and SIGUSR2
are what schedulers and trainers send each other. It kills a process that does not expect it, so only one that does gets it.
"""

import contextlib
import faulthandler
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from elastic_pytorch.log import logger

DUMP_SIGNAL = signal.SIGRTMIN + 10
COLD_START = str(Path(__file__).parent / "cold_start")  # goes on PYTHONPATH of a worker that is started anew
WRITE_SECONDS = 0.1  # for one worker's stacks to be written before the next one's


def answer_dumps() -> None:
    """Has this process write its stacks to stderr whenever it gets the signal."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True, chain=False)


def dump_stacks(workers: Mapping[int, str]) -> None:
    """Has workers write their stacks, one after the other.

    Of a worker that is no Python, a shell script for instance, those of its children that answer do.

    Args:
        workers: what the log calls them, by process id.
    """
    logger.info("asked for stacks of %d workers: pids %s", len(workers), " ".join(map(str, workers)))
    for worker, name in workers.items():
        answering = _answering(worker)
        if not answering:
            logger.warning("no stacks of %s: pid %d is no Python that was started to answer", name, worker)
        for pid in answering:
            logger.info("stacks of %s, pid %d:", name, pid)
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(pid, DUMP_SIGNAL)
            time.sleep(WRITE_SECONDS)


def children(pid: int) -> list[int]:
    """The process ids of a process's children."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, tasks.read_text().split())
    return found


def _answering(pid: int) -> list[int]:
    """The process, if it handles the signal, else those of its descendants that do."""
    if handles(pid, DUMP_SIGNAL):
        return [pid]
    return [descendant for child in children(pid) for descendant in _answering(child)]


def handles(pid: int, *numbers: int) -> bool:
    """Whether a process has handlers of its own for all of these signals."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return all(int(mask, 16) >> (number - 1) & 1 for number in numbers)
    return False
