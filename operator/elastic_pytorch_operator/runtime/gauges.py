"""Reads the values of the gauges. It only counts what statuses say, so that it is cheap enough for each scrape."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended
from elastic_pytorch_operator.api.timestamps import seconds_between
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.known_workers import count_states
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues, JobFigures
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey

CONNECTED_SECONDS = 10.0  # agents send a heartbeat every second, or every few seconds where there are thousands
PENDING = "Pending"


def read_gauges(
    cache: Cache,
    registry: AgentRegistry,
    queue: WorkQueue[JobKey],
    *,
    leading: bool,
    now: float,
    time: str,
    longest_work_seconds: float = 0.0,
) -> GaugeValues:
    """Returns the values at this moment.

    Args:
        cache: the jobs.
        registry: the agents.
        queue: the jobs that await a reconcile.
        leading: whether this replica leads.
        now: monotonic seconds.
        time: the time of day, RFC 3339.
        longest_work_seconds: for how long the oldest plan or write has been going on.
    """
    jobs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    workers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    pending: defaultdict[str, float] = defaultdict(float)
    stragglers: Counter[str] = Counter()
    for key in cache.keys:
        manifest = cache.job_manifest(key)
        status = manifest.get("status") or {}
        state = status.get("state") or PENDING
        jobs[key.namespace][state] += 1
        if state == PENDING:
            pending[key.namespace] = max(pending[key.namespace], seconds_between(pending_since(manifest), time))
        if not has_ended(status):
            workers[key.namespace].update(count_states(status))
            stragglers[key.namespace] += len(status.get("stragglers") or ())
    return GaugeValues(
        leading=leading,
        jobs=jobs,
        workers=workers,
        pending_seconds=pending,
        stragglers=stragglers,
        figures=(_figures(key, cache.job_manifest(key)) for key in cache.keys),
        agents=registry.heard_since(now - CONNECTED_SECONDS),
        polls=registry.open_polls,
        queued=len(queue),
        longest_reconcile_seconds=longest_work_seconds,
    )


def pending_since(manifest: Mapping[str, Any]) -> str:
    """Since when a Pending job has been due to train: RFC 3339, empty if it is not known."""
    status = manifest.get("status") or {}
    times = [manifest["metadata"].get("creationTimestamp") or ""]
    for type_ in (names.RUNNING, names.SUSPENDED):
        condition = find_condition(status, type_) or {}
        if condition.get("status") == "False":
            times.append(condition.get("lastTransitionTime") or "")
    return max(times)


def _figures(key: JobKey, manifest: Mapping[str, Any]) -> JobFigures:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    progress = status.get("progress") or {}
    speed = float(progress.get("stepsPerSecond") or 0.0) if status.get("worldSize") else 0.0
    efficiency = (status.get("scaling") or {}).get("efficiency")
    return JobFigures(
        namespace=key.namespace,
        name=key.name,
        wanted=spec.get("replicas") or 0,
        ready=status.get("readyReplicas") or 0,
        world_size=status.get("worldSize") or 0,
        step=progress.get("step"),
        step_seconds=1.0 / speed if speed else None,
        efficiency=None if efficiency is None else float(efficiency),
    )
