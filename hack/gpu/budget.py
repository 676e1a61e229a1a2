"""Runs a program within a time, and ends all that it has started."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

LEAST_SECONDS = 15.0  # with less time left, a measurement does not begin
MARK = "MEASUREMENT"  # the variable that marks what a program has started
END_SECONDS = 5.0  # for a program to end its processes after its time


def allot(wanted: float, left: float) -> float:
    """The seconds of a measurement that wants some, of those left to the run; 0: too few."""
    may = min(wanted, left - END_SECONDS)
    return may if may >= LEAST_SECONDS else 0.0


def run_within(
    command: list[str], seconds: float, environment: dict[str, str]
) -> tuple[str, str, int]:
    """Runs a command, and ends it with all that it has started when its time is over.

    Returns its standard output, standard error and exit status, which is -SIGTERM or -SIGKILL
    after its time.
    """
    mark = f"{MARK}={uuid.uuid4().hex}"
    marked = environment | dict([mark.split("=")])
    with subprocess.Popen(
        command,
        env=marked,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            # A process may start another one until it is killed.
            while left := carriers(mark):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
            out, err = process.communicate()
        return out, err, process.returncode


def carriers(mark: str) -> list[int]:
    """The living processes that have inherited a variable, whatever their parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # ended, or another user's
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
