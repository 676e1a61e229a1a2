"""Limits of a worker's processes. No torch."""

import os
import resource
from collections.abc import Sequence
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
THREADS = "OMP_NUM_THREADS"
# More are of no use, and some programs go through all possible descriptors.
MOST_OPEN_FILES = 1 << 20


def cpu_limit(cgroup: Path = CGROUP) -> float | None:
    """The cores of the container's quota, by cgroup v2 or v1; None: no quota can be read."""
    for quota_file, period_file in (
        ("cpu.max", "cpu.max"),
        ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
    ):
        try:
            quota = (cgroup / quota_file).read_text().split()[0]
            period = (cgroup / period_file).read_text().split()[-1]
            return int(quota) / int(period) if quota not in ("max", "-1") else None
        except (OSError, ValueError, ZeroDivisionError, IndexError):
            continue
    return None


def limit_threads(argv: Sequence[str], cgroup: Path = CGROUP) -> None:
    """Sets a default of OMP_NUM_THREADS: 1 for several workers, as torchrun, else the cores.

    numpy and torch read the variable when they are imported.
    """
    if any(argument.startswith("--nproc") for argument in argv):
        return
    workers = os.environ.get("PET_NPROC_PER_NODE", "")
    if workers.isdecimal() and int(workers) > 1:
        os.environ.setdefault(THREADS, "1")
    elif (
        workers in ("", "1")
        and (cores := cpu_limit(cgroup)) is not None
        and cores < len(os.sched_getaffinity(0))
    ):
        os.environ.setdefault(THREADS, str(max(1, int(cores))))


def raise_open_files() -> None:
    """Container runtimes start with 1024: too few for a large group, or a loader's tensors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
