"""Detects kills by the kernel's OOM killer: the container's cgroup counts them."""

from pathlib import Path

# cgroup v2, and v1 as containers see it.
COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


class OomKills:
    """Reports whether the OOM killer has killed processes of this container.

    Args:
        counters: files of which one may exist, with a line `oom_kill N`.
    """

    def __init__(self, counters: tuple[Path, ...] = COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count()

    def happened(self) -> bool:
        """Whether there was a kill since the last call."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        for path in self._counters:
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                name, _, value = line.partition(" ")
                if name == "oom_kill" and value.isdigit():
                    return int(value)
        return 0
