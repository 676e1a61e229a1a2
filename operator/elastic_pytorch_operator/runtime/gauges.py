"""Reads the values of the gauges: on the event loop what changes, the rest in any thread."""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended
from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.known_workers import count_states
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues, JobFigures
from elastic_pytorch_operator.monitoring.job_reasons import (
    PENDING,
    impairment,
    state_of,
    wait_reason,
)
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey

logger = logging.getLogger(__name__)

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


def begin_to_read(
    cache: Cache,
    registry: AgentRegistry,
    queue: WorkQueue[JobKey],
    *,
    leading: bool,
    now: float,
    time: str,
    longest_work_seconds: float = 0.0,
    certificate_ends_at: float | None = None,
) -> Callable[[], GaugeValues]:
    """Takes the values of this moment; returns what counts them, in any thread."""
    others = GaugeValues(
        leading=leading,
        agents=registry.heard_since(now - CONNECTED_SECONDS),
        streams=registry.open_streams,
        queued=len(queue),
        longest_reconcile_seconds=longest_work_seconds,
        unreadable=cache.unreadable.counts,
        unavailable=cache.unavailable | cache.watch_lag.failing(now),
        ready=cache.primed,
        certificate_ends_at=certificate_ends_at,
    )
    # A manifest in the cache is replaced, and never changed.
    manifests = [(key, cache.job_manifest(key)) for key in cache.keys] if leading else []
    return partial(_count, manifests, time, others)


def _count(
    manifests: Sequence[tuple[JobKey, Mapping[str, Any]]], time: str, others: GaugeValues
) -> GaugeValues:
    jobs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    workers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    waiting: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    stragglers: Counter[str] = Counter()
    figures: list[JobFigures] = []
    for key, manifest in manifests:
        try:
            status = manifest.get("status") or {}
            state = state_of(status)
            jobs[key.namespace][state] += 1
            if state == PENDING:
                waiting[key.namespace, wait_reason(status)].append(
                    seconds_between(pending_since(manifest), time)
                )
            if not has_ended(status):
                workers[key.namespace].update(count_states(status))
                stragglers[key.namespace] += len(status.get("stragglers") or ())
            figures.append(_figures(key, manifest, time))
        # One spoilt status must not take away the metrics of all.
        except Exception:
            logger.debug("cannot read a status", extra={"job": str(key)}, exc_info=True)
    return replace(
        others,
        jobs=jobs,
        workers=workers,
        waiting=waiting,
        stragglers=stragglers,
        figures=figures,
        memory_limit_bytes=memory_limit_bytes(),
    )


def pending_since(manifest: Mapping[str, Any]) -> str:
    """When a Pending job became due to train: RFC 3339, empty if it is not known."""
    status = manifest.get("status") or {}
    times = [manifest["metadata"].get("creationTimestamp") or ""]
    for type_ in (names.RUNNING, names.SUSPENDED):
        condition = find_condition(status, type_)
        if condition.get("status") == "False":
            times.append(condition.get("lastTransitionTime") or "")
    return max(times)


def _impaired_since(manifest: Mapping[str, Any]) -> str:
    status = manifest.get("status") or {}
    if state_of(status) == PENDING:
        return pending_since(manifest)
    return str(find_condition(status, names.DEGRADED).get("lastTransitionTime") or "")


def _figures(key: JobKey, manifest: Mapping[str, Any], time: str) -> JobFigures:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    progress = status.get("progress") or {}
    speed = float(progress.get("stepsPerSecond") or 0.0) if status.get("worldSize") else 0.0
    impaired = impairment(status)
    return JobFigures(
        namespace=key.namespace,
        name=key.name,
        wanted=spec.get("replicas") or 0,
        ready=status.get("readyReplicas") or 0,
        world_size=status.get("worldSize") or 0,
        step=progress.get("step"),
        step_seconds=1.0 / speed if speed else None,
        impaired=impaired,
        impaired_seconds=seconds_between(_impaired_since(manifest), time) if impaired else 0.0,
    )
