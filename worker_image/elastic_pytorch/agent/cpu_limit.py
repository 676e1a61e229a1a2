"""How many threads a worker's processes may have: by the cores that its container may use, not by those of the node. Needs no torch."""

import os
from collections.abc import Sequence
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
THREADS = "OMP_NUM_THREADS"


def cpu_limit(cgroup: Path = CGROUP) -> float | None:
    """How many cores' time the container may use; None: as much as there is, or it cannot be read.

    Args:
        cgroup: the container's own, of version 1 or 2 (kernel documentation, admin-guide/cgroup-v2, `cpu.max`).
    """
    for quota_file, period_file in (("cpu.max", "cpu.max"), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = (cgroup / quota_file).read_text().split()[0], (cgroup / period_file).read_text().split()[-1]
            return int(quota) / int(period) if quota not in ("max", "-1") else None
        except (OSError, ValueError, ZeroDivisionError, IndexError):
            continue
    return None


def limit_threads(argv: Sequence[str], cgroup: Path = CGROUP) -> None:
    """Sets OMP_NUM_THREADS, unless it is set: to 1 for several workers, as torchrun does, and for one to the cores that it may use.

    To be called before the import of numpy and torch, which read the variable then.

    Args:
        argv: torchrun's options.
        cgroup: the container's own.
    """
    if any(argument.startswith("--nproc") for argument in argv):
        return
    workers = os.environ.get("PET_NPROC_PER_NODE", "")
    if workers.isdecimal() and int(workers) > 1:
        os.environ.setdefault(THREADS, "1")
    elif workers in ("", "1") and (cores := cpu_limit(cgroup)) is not None and cores < len(os.sched_getaffinity(0)):
        os.environ.setdefault(THREADS, str(max(1, int(cores))))
