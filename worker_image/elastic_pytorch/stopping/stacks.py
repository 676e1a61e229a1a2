"""Writes the Python stacks of workers that hang to their stderr, and so to the pod's log.

faulthandler answers a real-time signal, which hardly any program uses otherwise. The signal kills a
process that does not handle it, so only those that do get it.
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
WRITE_SECONDS = 0.1  # for one worker's stacks, before the next one's


def cold_start_path() -> str:
    """PYTHONPATH of a worker that starts in a new interpreter."""
    folder = str(Path(__file__).parent / "cold_start")
    return os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))


def answer_dumps() -> None:
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True, chain=False)


def dump_stacks(workers: Mapping[int, str]) -> None:
    logger.info(
        "asked for stacks of %d workers: pids %s", len(workers), " ".join(map(str, workers))
    )
    for worker, name in workers.items():
        answers = answering(worker, DUMP_SIGNAL)
        if not answers:
            logger.warning(
                "no stacks of %s: pid %d is no Python that was started to answer", name, worker
            )
        for pid in answers:
            logger.info("stacks of %s, pid %d:", name, pid)
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(pid, DUMP_SIGNAL)
            time.sleep(WRITE_SECONDS)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has just ended
                found += map(int, (thread / "children").read_text().split())
    return found


def stat_fields(process: str) -> list[str]:
    """The fields of proc(5)'s `stat` from the state on, or OSError.

    The process may be `PID/task/TID`. Its name, which comes before, may hold anything.
    """
    stat = Path("/proc", process, "stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()


def answering(pid: int, *numbers: int) -> list[int]:
    """A process, or else its first descendants, with handlers of all these signals.

    The process may be a shell script that runs Python.
    """
    if handles(pid, *numbers):
        return [pid]
    return [found for child in children(pid) for found in answering(child, *numbers)]


def handles(pid: int, *numbers: int) -> bool:
    """Whether a process has its own handlers of all these signals."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return all(int(mask, 16) >> (number - 1) & 1 for number in numbers)
    return False
