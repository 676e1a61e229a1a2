"""Records the wall and CPU seconds of each test, for `make test-times` and `make test`."""

import contextlib
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from elastic_pytorch.stopping.stacks import children

VARIABLE = "RECORD_TIMES"  # the file to which each process of a run appends
TICKS = os.sysconf("SC_CLK_TCK")  # in a second


class TimesRecorder:
    """Appends each test's identity, wall seconds and CPU seconds to a file, with tabs.

    Fixtures count towards the test that makes them. The CPU seconds are those of the test's process
    and of the processes below it, but for those that were not waited for: what a cluster does for a
    test is missing.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line is one write, so that processes do not mix theirs.
        self._file = path.open("a", buffering=1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Runs one test, and records it."""
        began, cpu_before = time.monotonic(), _cpu_seconds()
        outcome = yield
        seconds = time.monotonic() - began
        self._file.write(f"{item.nodeid}\t{seconds:.3f}\t{_cpu_seconds() - cpu_before:.3f}\n")
        return outcome


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (
        sum(usage.ru_utime + usage.ru_stime for usage in used) + _living_ticks(os.getpid()) / TICKS
    )


def _living_ticks(pid: int) -> int:
    """What the processes below one have used that live, and theirs that have ended."""
    ticks = 0
    for child in children(pid):
        with contextlib.suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) + _living_ticks(child)
    return ticks
