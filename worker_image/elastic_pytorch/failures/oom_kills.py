"""Detects kills by the kernel's OOM killer, which the container's cgroup counts."""

import contextlib
from pathlib import Path

from elastic_pytorch.log import logger

# cgroup v2, and v1 as containers see it.
COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))

GROUP_SETTING = Path("/sys/fs/cgroup/memory.oom.group")


def tell_group_kill(setting: Path = GROUP_SETTING) -> None:
    with contextlib.suppress(OSError):
        if setting.read_text().strip() == "1":
            logger.info(
                "if this container runs out of memory, the kernel kills all its processes, "
                "and the state in its memory is lost (memory.oom.group is 1); "
                "with singleProcessOOMKill: true of the kubelet, it kills one process only"
            )


class OomKills:
    def __init__(self, counters: tuple[Path, ...] = COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count()

    def happened(self) -> bool:
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
