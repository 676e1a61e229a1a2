"""The gauges of jobs and their workers: by namespace, and of each job on request."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Gauge

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.known_workers import count_states
from elastic_pytorch_operator.monitoring.job_reasons import (
    PENDING,
    WAIT_REASONS,
    impairment,
    state_of,
    wait_reason,
)
from elastic_pytorch_operator.spec.job import JobKey

logger = logging.getLogger(__name__)

JOB_STATES = (
    *(PENDING, names.RUNNING, names.RESIZING, names.SUSPENDING),
    *(names.SUSPENDED, names.COMPLETE, names.FAILED),
)
WORKER_STATES = (
    *("Starting", "Preparing", "Ready", "Spare", "Running"),
    *("Saving", "Silent", "Leaving", "Succeeded", "Lost"),
)
# Of each job: a metric, and what it shows.
FIGURES = {
    "wanted": ("elastic_pytorch_job_wanted_workers", "The job's spec.replicas."),
    "ready": ("elastic_pytorch_job_ready_workers", "The job's status.readyReplicas."),
    "world_size": (
        "elastic_pytorch_job_world_size",
        "Processes that train together in the job; 0 if none does.",
    ),
    "step": ("elastic_pytorch_job_step", "The newest training step that was reported."),
    "step_seconds": (
        "elastic_pytorch_job_step_seconds",
        "Time of a training step, while the job reports steps.",
    ),
}


class JobGauges:
    def __init__(self, gauge: Callable[[str, str, Sequence[str]], Gauge], *, per_job: bool) -> None:
        self._per_job = per_job
        self._jobs = gauge(
            "elastic_pytorch_jobs",
            f"Jobs by state: {', '.join(JOB_STATES)}.",
            ("namespace", "state"),
        )
        self._waiting = gauge(
            "elastic_pytorch_jobs_waiting",
            f"Pending jobs by what they wait for: {', '.join(WAIT_REASONS)}. Only reasons for "
            "which some job waits.",
            ("namespace", "reason"),
        )
        self._longest_pending = gauge(
            "elastic_pytorch_longest_pending_seconds",
            "The longest time that a job waiting for this reason has been Pending.",
            ("namespace", "reason"),
        )
        self._workers = gauge(
            "elastic_pytorch_workers",
            f"Workers of jobs that have not ended, by state: {', '.join(WORKER_STATES)}.",
            ("namespace", "state"),
        )
        self._stragglers = gauge(
            "elastic_pytorch_stragglers",
            "Slow ranks for which the others wait: entries of status.stragglers "
            "(docs/use/observability.md).",
            ("namespace",),
        )
        job = ("namespace", "job_name")
        self._figures = {name: gauge(*metric, job) for name, metric in FIGURES.items()}
        self._impaired = gauge(
            "elastic_pytorch_job_impaired_seconds",
            "How long the job has been Pending or Degraded, by reason; absent otherwise.",
            ("namespace", "job_name", "reason"),
        )

    def render(self, manifests: Iterable[tuple[JobKey, Manifest]], time: str) -> None:
        for gauge in (*vars(self).values(), *self._figures.values()):
            if isinstance(gauge, Gauge):
                gauge.clear()
        jobs: defaultdict[str, Counter[str]] = defaultdict(Counter)
        workers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        waiting: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        stragglers: Counter[str] = Counter()
        for key, manifest in manifests:
            namespace = key.namespace
            try:
                status = manifest.get("status") or {}
                state = state_of(status)
                jobs[namespace][state] += 1
                if state == PENDING:
                    seconds = seconds_between(pending_since(manifest), time)
                    waiting[namespace, wait_reason(status)].append(seconds)
                if not has_ended(status):
                    workers[namespace].update(count_states(status))
                    stragglers[namespace] += len(status.get("stragglers") or ())
                if self._per_job:
                    self._render_job(key, manifest, time)
            # One spoilt status must not take away the metrics of all.
            except Exception:
                logger.debug("cannot read a status", extra={"job": str(key)}, exc_info=True)
        for place, pending in waiting.items():
            self._waiting.labels(*place).set(len(pending))
            self._longest_pending.labels(*place).set(max(pending))
        for namespace in jobs:
            self._stragglers.labels(namespace).set(stragglers[namespace])
            for state in JOB_STATES:
                self._jobs.labels(namespace, state).set(jobs[namespace][state])
            for state in WORKER_STATES:
                self._workers.labels(namespace, state).set(workers[namespace][state])

    def _render_job(self, key: JobKey, manifest: Manifest, time: str) -> None:
        spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
        progress = status.get("progress") or {}
        speed = float(progress.get("stepsPerSecond") or 0.0) if status.get("worldSize") else 0.0
        figures = {
            "wanted": spec.get("replicas") or 0,
            "ready": status.get("readyReplicas") or 0,
            "world_size": status.get("worldSize") or 0,
            "step": progress.get("step"),
            "step_seconds": 1.0 / speed if speed else None,
        }
        for name, value in figures.items():
            if value is not None:
                self._figures[name].labels(*key).set(value)
        if reason := impairment(status):
            since = find_condition(status, names.DEGRADED).get("lastTransitionTime") or ""
            if state_of(status) == PENDING:
                since = pending_since(manifest)
            self._impaired.labels(*key, reason).set(seconds_between(since, time))


def pending_since(manifest: Manifest) -> str:
    """When a Pending job became due to train: RFC 3339, empty if it is not known."""
    status = manifest.get("status") or {}
    times = [manifest["metadata"].get("creationTimestamp") or ""]
    for type_ in (names.RUNNING, names.SUSPENDED):
        condition = find_condition(status, type_)
        if condition.get("status") == "False":
            times.append(condition.get("lastTransitionTime") or "")
    return max(times)
