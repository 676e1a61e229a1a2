"""Runs a program within a time, and ends all that it has started."""

import contextlib
import os
import signal
import subprocess
import time

from tests.worker_image.agents import descendants

LEAST_SECONDS = 15.0  # with less time left, a measurement is not begun
END_SECONDS = 5.0  # for a program to end what it has started, when its time is over


def allot(wanted: float, left: float) -> float:
    """How long a measurement may take: what it wants, or what is left; 0: too little for anything.

    Args:
        wanted: seconds.
        left: seconds until the whole run is to end.
    """
    may = min(wanted, left - END_SECONDS)
    return may if may >= LEAST_SECONDS else 0.0


def run_within(command: list[str], seconds: float, environment: dict[str, str]) -> tuple[str, str, int]:
    """Runs a command, and ends it with all of its descendants when its time is over.

    Returns:
        Its standard output, its standard error, and its exit status; -SIGTERM or -SIGKILL if its time was over.
    """
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            others = descendants(process.pid)
            process.terminate()
            deadline = time.monotonic() + END_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            for pid in {*others, *descendants(process.pid), process.pid}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            out, err = process.communicate()
        return out, err, process.returncode
