"""The gauges of jobs and their workers: by namespace, and of each job on request."""

from collections.abc import Callable, Sequence

from prometheus_client import Gauge

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues, JobFigures
from elastic_pytorch_operator.monitoring.job_reasons import PENDING, WAIT_REASONS

JOB_STATES = (
    *(PENDING, names.RUNNING, names.RESIZING, names.SUSPENDING),
    *(names.SUSPENDED, names.COMPLETE, names.FAILED),
)
WORKER_STATES = (
    *("Starting", "Preparing", "Ready", "Spare", "Running"),
    *("Saving", "Silent", "Leaving", "Succeeded", "Lost"),
)
# Of each job, by the attribute of JobFigures: a metric, and what it shows.
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

    def render(self, gauges: GaugeValues) -> None:
        for gauge in (*vars(self).values(), *self._figures.values()):
            if isinstance(gauge, Gauge):
                gauge.clear()
        if not gauges.leading:
            return
        for (namespace, reason), seconds in gauges.waiting.items():
            self._waiting.labels(namespace, reason).set(len(seconds))
            self._longest_pending.labels(namespace, reason).set(max(seconds))
        for namespace, jobs in gauges.jobs.items():
            self._stragglers.labels(namespace).set(gauges.stragglers.get(namespace, 0))
            workers = gauges.workers.get(namespace, {})
            for state in JOB_STATES:
                self._jobs.labels(namespace, state).set(jobs.get(state, 0))
            for state in WORKER_STATES:
                self._workers.labels(namespace, state).set(workers.get(state, 0))
        for job in gauges.figures if self._per_job else ():
            self._render_job(job)

    def _render_job(self, job: JobFigures) -> None:
        for name, gauge in self._figures.items():
            if (value := getattr(job, name)) is not None:
                gauge.labels(job.namespace, job.name).set(value)
        if job.impaired:
            self._impaired.labels(job.namespace, job.name, job.impaired).set(job.impaired_seconds)
