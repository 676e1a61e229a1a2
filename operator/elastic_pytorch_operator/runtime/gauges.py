"""Reads the values of the gauges on the event loop; any thread may then count the jobs."""

import math
from pathlib import Path

from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey

CONNECTED_SECONDS = 10.0
CGROUP = Path("/sys/fs/cgroup")
FILES = ("memory.max", "memory/memory.limit_in_bytes")  # of version 2 and of version 1
NO_LIMIT_BYTES = 1 << 60  # version 1 has a large number where there is no limit


def memory_limit_bytes(cgroup: Path = CGROUP) -> float:
    """Returns infinity if there is no limit, or no file that says it."""
    for name in FILES:
        try:
            limit = float((cgroup / name).read_text())
        except (OSError, ValueError):  # version 2 says `max`
            continue
        return limit if limit < NO_LIMIT_BYTES else math.inf
    return math.inf


def read_gauges(
    cache: Cache,
    registry: AgentRegistry,
    queue: WorkQueue[JobKey],
    *,
    leading: bool,
    now: float,
    time: str,
    longest_work_seconds: float = 0.0,
    certificate_ends_at: float | None = None,
) -> GaugeValues:
    return GaugeValues(
        leading=leading,
        # A manifest in the cache is replaced, and never changed.
        jobs=[(key, cache.job_manifest(key)) for key in cache.keys] if leading else (),
        time=time,
        agents=registry.heard_since(now - CONNECTED_SECONDS),
        streams=registry.open_streams,
        queued=len(queue),
        longest_reconcile_seconds=longest_work_seconds,
        unreadable=cache.unreadable.counts,
        unavailable=cache.unavailable | cache.watch_lag.failing(now),
        ready=cache.primed,
        certificate_ends_at=certificate_ends_at,
        memory_limit_bytes=memory_limit_bytes(),
    )
