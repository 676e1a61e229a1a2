"""How much memory the operator's container may take, as its cgroup has it."""

import math
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
FILES = ("memory.max", "memory/memory.limit_in_bytes")  # of version 2 and of version 1
NO_LIMIT_BYTES = 1 << 60  # version 1 has a large number where there is no limit


def memory_limit_bytes(cgroup: Path = CGROUP) -> float:
    """The limit; infinity if there is none, or no file that says it.

    Args:
        cgroup: the container's own (kernel documentation, admin-guide/cgroup-v2, `memory.max`).
    """
    for name in FILES:
        try:
            limit = float((cgroup / name).read_text())
        except (OSError, ValueError):  # version 2 says `max`
            continue
        return limit if limit < NO_LIMIT_BYTES else math.inf
    return math.inf
