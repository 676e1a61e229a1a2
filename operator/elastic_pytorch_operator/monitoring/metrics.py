"""The operator's metrics: their names, labels and meanings stand here, and nowhere else.

Queue, reconciles and requests have the names that controller-runtime and client-go gave them, so that dashboards for operators
know them. The number of series grows with the namespaces that have jobs, and with the jobs only on request. docs/metrics.md is made
from this module.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics import disable_created_metrics

from elastic_pytorch_operator import __version__
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.spent_time import SpentTime
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.reporting.interruption_phases import PHASES, PREPARE

disable_created_metrics()  # type: ignore[no-untyped-call]  # half of the text, which Prometheus does not read in this format

CONTROLLER = "elasticpytorchjob"
CONTENT_TYPE = CONTENT_TYPE_LATEST
NO_ANSWER = "<error>"  # client-go's word in the place of a status code

JOB_STATES = (
    "Pending",
    names.RUNNING,
    names.RESIZING,
    names.SUSPENDING,
    names.SUSPENDED,
    names.COMPLETE,
    names.FAILED,
)
WORKER_STATES = ("Starting", "Preparing", "Checking", "Ready", "Spare", "Running", "Silent", "Leaving", "Succeeded", "Lost")

# The values of labels. Every series begins at 0 with its process: Prometheus' `increase()` ignores a counter's first sample, so that a
# series created by its first increment would lose it.
ROUND_REASONS = (
    names.FIRST_ROUND,
    names.WORKER_FAILED,
    names.WORKER_LOST,
    names.WORKER_LEAVING,
    names.WORKER_JOINED,
    names.SCALED_DOWN,
    names.GROUP_RESTARTED,
    names.PROCESSES_DIFFER,
    names.BELOW_MINIMUM,
    names.PROGRESS_STALLED,
    names.JOB_SUSPENDED,
    names.EVICTED,
)
FAILURE_KINDS = ("Exit", "Signal", "OutOfMemory", "Pod", "Hang", "Killed")
RECONCILE_RESULTS = ("success", "error", "requeue_after")
REVIEW_RESULTS = ("signature", "valid", "invalid", "error")
OBJECT_KINDS = (names.KIND, "Pod", "Node", kueue.WORKLOAD)
REFUSAL_REASONS = ("files", "rate", "address", "total", "crowd", "timeout")

WORK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
KEEP_SECONDS = 600.0  # for which the counts of a namespace without jobs are still exported: a few scrapes

INTERRUPTION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 6.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as the documentation has it."""

    name: str
    kind: str  # counter, gauge or histogram
    labels: tuple[str, ...]
    text: str


class Metrics:
    """All metrics of one operator.

    Args:
        per_job: whether each job has series of its own.
        clock: monotonic seconds.

    Attributes:
        families: what there is, in the order of the documentation.
    """

    def __init__(self, *, per_job: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.families: list[Family] = []
        self._per_job = per_job
        self._clock = clock
        self._namespaces: dict[str, float] = {}  # those whose counts are exported, and when each last had a job
        self._lock = threading.Lock()  # of the namespaces; never held for longer than it takes to begin or to drop one
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._define_queue()
        self._define_reconciles()
        self._define_domain()
        self._define_jobs()
        self._begin_at_zero()
        self._info.labels(__version__).set(1)
        self._leader.labels(names.OPERATOR).set(0)

    def _define_queue(self) -> None:
        name = ("name",)
        self._queue_depth = self._gauge("workqueue_depth", "Jobs that wait for a reconcile, due or scheduled.", name)
        self._queue_adds = self._counter("workqueue_adds_total", "Jobs put into the queue.", name)
        self._queue_retries = self._counter("workqueue_retries_total", "Jobs put back after a failed reconcile.", name)
        self._queue_wait = self._histogram(
            "workqueue_queue_duration_seconds", "Time from when a job was due until its reconcile began.", name, WORK_BUCKETS
        )
        self._queue_work = self._histogram(
            "workqueue_work_duration_seconds", "Time that a job was worked on.", name, WORK_BUCKETS
        )
        self._queue_longest = self._gauge(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest running reconcile, or of a write that it asked for.",
            name,
        )

    def _define_reconciles(self) -> None:
        controller = ("controller",)
        self._reconciles = self._counter(
            "controller_runtime_reconcile_total",
            "Reconciles by result: success, error, or requeue_after (scheduled again).",
            ("controller", "result"),
        )
        self._reconcile_errors = self._counter(
            "controller_runtime_reconcile_errors_total",
            "Reconciles and writes that failed and are retried.",
            controller,
        )
        self._reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds", "Duration of reconciles.", controller, WORK_BUCKETS
        )
        self._requests = self._counter(
            "rest_client_requests_total",
            f"Requests to the API server, except watches, by status code ({NO_ANSWER}: no response) and method.",
            ("code", "method"),
        )
        self._leader = self._gauge("leader_election_master_status", "1 on the leader, 0 on a standby replica.", ("name",))

    def _define_domain(self) -> None:
        self._jobs = self._gauge("elastic_pytorch_jobs", f"Jobs by state: {', '.join(JOB_STATES)}.", ("namespace", "state"))
        self._longest_pending = self._gauge(
            "elastic_pytorch_longest_pending_seconds",
            "The longest time that a job has been Pending; 0 if none is.",
            ("namespace",),
        )
        self._workers = self._gauge(
            "elastic_pytorch_workers",
            f"Workers of jobs that have not ended, by state: {', '.join(WORKER_STATES)}.",
            ("namespace", "state"),
        )
        self._stragglers = self._gauge(
            "elastic_pytorch_stragglers",
            "Ranks that are slow, so that the others wait for them: entries of status.stragglers (docs/observability.md).",
            ("namespace",),
        )
        self._rounds = self._counter(
            "elastic_pytorch_rounds_declared_total", "Rounds declared, by reason (docs/rounds.md).", ("namespace", "reason")
        )
        self._interruption = self._histogram(
            "elastic_pytorch_interruption_seconds",
            "Time from a disturbance of a group to its next training step, by the reason of the round.",
            ("reason",),
            INTERRUPTION_BUCKETS,
        )
        self._interruption_phases = self._histogram(
            "elastic_pytorch_interruption_phase_seconds",
            f"Time of each phase of an interruption: {', '.join(PHASES)} (docs/rounds.md). Phases that are not known are left out. "
            f"{PREPARE} counts before a first round, too.",
            ("phase",),
            INTERRUPTION_BUCKETS,
        )
        self._steps_lost = self._counter(
            "elastic_pytorch_steps_lost_total", "Training steps repeated after a change of the group.", ("namespace",)
        )
        self._spent_time = SpentTime(self._counter)
        self._failures = self._counter(
            "elastic_pytorch_failures_total",
            "Root causes of failures by kind: Exit (an exception, or another exit code), Signal, OutOfMemory, Pod (its container "
            "failed), Hang, Killed (from outside; not counted against the job).",
            ("namespace", "kind"),
        )
        self._agent_requests = self._counter(
            "elastic_pytorch_agent_requests_total",
            "Requests of agents by kind (stream, heartbeat, round, other) and status code (docs/protocol.md). The heartbeats and "
            "rounds of a stream are counted one by one.",
            ("request", "code"),
        )
        self._agents = self._gauge(
            "elastic_pytorch_agents_connected", "Agents that sent a heartbeat within the last ten seconds."
        )
        self._streams = self._gauge(
            "elastic_pytorch_agent_streams_open", "Open streams: agents that hear of the next round (docs/protocol.md)."
        )
        self._token_reviews = self._counter(
            "elastic_pytorch_token_reviews_total",
            "Checks of agents' tokens by result: signature (valid by its signature), or what the API server's review says: valid, "
            "invalid, or error (no answer).",
            ("result",),
        )
        self._refused_connections = self._counter(
            "elastic_pytorch_connections_refused_total",
            "Connections to the agents' port that were refused, by reason. The process needs its last 256 files for "
            "itself (files). The address opens too many per second (rate) or has too many "
            "open (address). All addresses have too many open (total), or too many wait for their turn (crowd). No agent authenticated "
            "in time (timeout).",
            ("reason",),
        )
        self._unreadable = self._gauge(
            "elastic_pytorch_unreadable_objects",
            "Objects that the operator cannot read, and leaves out, by kind. Its log names each of them once.",
            ("kind",),
        )
        self._unavailable = self._gauge(
            "elastic_pytorch_namespace_unavailable",
            "1 for each namespace of watchNamespaces that the operator cannot list or watch. It serves the others.",
            ("namespace",),
        )
        self._info = self._gauge("elastic_pytorch_operator_info", "Always 1, with the operator's version.", ("version",))

    def _define_jobs(self) -> None:
        job = ("namespace", "job_name")
        only = "With metrics.perJob only."
        self._job_wanted = self._gauge("elastic_pytorch_job_wanted_workers", f"The job's spec.replicas. {only}", job)
        self._job_ready = self._gauge("elastic_pytorch_job_ready_workers", f"The job's status.readyReplicas. {only}", job)
        self._job_size = self._gauge(
            "elastic_pytorch_job_world_size", f"Processes that train together in the job; 0 if none does. {only}", job
        )
        self._job_step = self._gauge("elastic_pytorch_job_step", f"The newest training step that was reported. {only}", job)
        self._job_step_seconds = self._gauge(
            "elastic_pytorch_job_step_seconds", f"Time of a training step, while the job reports steps. {only}", job
        )
        self._job_efficiency = self._gauge(
            "elastic_pytorch_job_scaling_efficiency",
            f"What each of the last workers adds, as a part of what each worker before them does: status.scaling.efficiency. {only}",
            job,
        )

    def _begin_at_zero(self) -> None:
        for of_queue in (self._queue_adds, self._queue_retries, self._queue_wait, self._queue_work):
            of_queue.labels(CONTROLLER)
        for of_controller in (self._reconcile_errors, self._reconcile_seconds):
            of_controller.labels(CONTROLLER)
        for result in RECONCILE_RESULTS:
            self._reconciles.labels(CONTROLLER, result)
        for reason in ROUND_REASONS:
            self._interruption.labels(reason)
        for phase in PHASES:
            self._interruption_phases.labels(phase)
        for result in REVIEW_RESULTS:
            self._token_reviews.labels(result)
        for refusal in REFUSAL_REASONS:
            self._refused_connections.labels(refusal)

    def render(self, gauges: GaugeValues) -> bytes:
        """The text that Prometheus reads. It takes long where there are many namespaces; any thread may make it, one at a time."""
        self._leader.labels(names.OPERATOR).set(gauges.leading)
        self._queue_depth.labels(CONTROLLER).set(gauges.queued)
        self._queue_longest.labels(CONTROLLER).set(gauges.longest_reconcile_seconds)
        self._agents.set(gauges.agents)
        self._streams.set(gauges.streams)
        for kind in OBJECT_KINDS:
            self._unreadable.labels(kind).set(gauges.unreadable.get(kind, 0))
        self._unavailable.clear()
        for namespace in sorted(gauges.unavailable):
            self._unavailable.labels(namespace).set(1)
        self._render_namespaces(gauges)
        self._render_jobs(gauges)
        return generate_latest(self._registry)

    def _render_namespaces(self, gauges: GaugeValues) -> None:
        for gauge in (self._jobs, self._workers, self._longest_pending, self._stragglers):
            gauge.clear()
        now = self._clock()
        for namespace, jobs in gauges.jobs.items() if gauges.leading else ():
            self._begin_namespace(namespace, now)
            self._longest_pending.labels(namespace).set(gauges.pending_seconds.get(namespace, 0.0))
            self._stragglers.labels(namespace).set(gauges.stragglers.get(namespace, 0))
            workers = gauges.workers.get(namespace, {})
            for state in JOB_STATES:
                self._jobs.labels(namespace, state).set(jobs.get(state, 0))
            for state in WORKER_STATES:
                self._workers.labels(namespace, state).set(workers.get(state, 0))
        for namespace in list(self._namespaces):
            with self._lock:
                if now - self._namespaces[namespace] > KEEP_SECONDS:
                    del self._namespaces[namespace]
                    for counter, labels in self._counts_of(namespace):
                        counter.remove(*labels)
                    self._spent_time.forget(namespace)

    def _render_jobs(self, gauges: GaugeValues) -> None:
        for gauge in (self._job_wanted, self._job_ready, self._job_size, self._job_step, self._job_step_seconds):
            gauge.clear()
        self._job_efficiency.clear()
        for job in gauges.figures if gauges.leading and self._per_job else ():
            self._job_wanted.labels(job.namespace, job.name).set(job.wanted)
            self._job_ready.labels(job.namespace, job.name).set(job.ready)
            self._job_size.labels(job.namespace, job.name).set(job.world_size)
            if job.step is not None:
                self._job_step.labels(job.namespace, job.name).set(job.step)
            if job.step_seconds is not None:
                self._job_step_seconds.labels(job.namespace, job.name).set(job.step_seconds)
            if job.efficiency is not None:
                self._job_efficiency.labels(job.namespace, job.name).set(job.efficiency)

    def _begin_namespace(self, namespace: str, now: float) -> None:
        """Has all counts of a namespace begin at 0, and be kept for a while."""
        with self._lock:
            if namespace not in self._namespaces:
                for counter, labels in self._counts_of(namespace):
                    counter.labels(*labels)
            self._namespaces[namespace] = now

    def _counts_of(self, namespace: str) -> Iterator[tuple[Counter, tuple[str, ...]]]:
        yield self._steps_lost, (namespace,)
        for reason in ROUND_REASONS:
            yield self._rounds, (namespace, reason)
        for kind in FAILURE_KINDS:
            yield self._failures, (namespace, kind)
        yield from self._spent_time.series(namespace)

    def queued(self) -> None:
        """A job was put into the queue."""
        self._queue_adds.labels(CONTROLLER).inc()

    def retried(self) -> None:
        """A job was put back after a failure."""
        self._queue_retries.labels(CONTROLLER).inc()

    def taken(self, seconds: float) -> None:
        """A job was taken out of the queue, this long after it was due."""
        self._queue_wait.labels(CONTROLLER).observe(seconds)

    def worked(self, seconds: float) -> None:
        """A job has been worked on for this long."""
        self._queue_work.labels(CONTROLLER).observe(seconds)

    def reconciled(self, result: str, seconds: float) -> None:
        """A reconcile is over: with `success`, `error` or `requeue_after`, after this long."""
        self._reconciles.labels(CONTROLLER, result).inc()
        self._reconcile_seconds.labels(CONTROLLER).observe(seconds)
        if result == "error":
            self._reconcile_errors.labels(CONTROLLER).inc()

    def write_failed(self) -> None:
        """A write that a reconcile asked for has failed, and is tried again."""
        self._reconcile_errors.labels(CONTROLLER).inc()

    def requested(self, method: str, code: int) -> None:
        """The API server was asked something, and answered with a status; 0: it did not."""
        self._requests.labels(str(code) if code else NO_ANSWER, method).inc()

    def decided(self, namespace: str, before: Memory, todo: Plan) -> None:
        """A plan was made for a job of a namespace, with what was remembered before."""
        self._begin_namespace(namespace, self._clock())
        if todo.round is not None:
            self._rounds.labels(namespace, todo.round.reason).inc()
        if todo.set_up_seconds is not None:
            self._interruption_phases.labels(PREPARE).observe(todo.set_up_seconds)
        self._spent_time.count(namespace, before.account, todo.memory.account)
        interruption, last = todo.memory.interruption, todo.memory.budget.last
        if interruption is not None and interruption.seconds is not None and interruption != before.interruption:
            self._interruption.labels(interruption.reason).observe(interruption.seconds)
            for phase, seconds in interruption.phases.items():
                self._interruption_phases.labels(phase).observe(seconds)
            self._steps_lost.labels(namespace).inc(interruption.steps_lost or 0)
        if last is not None and last is not before.budget.last:
            self._failures.labels(namespace, last.kind).inc()

    def answered(self, request: str, code: int) -> None:
        """An agent's `heartbeat`, its question for a `round`, or something `other` was answered with a status."""
        self._agent_requests.labels(request, str(code)).inc()

    def reviewed(self, result: str) -> None:
        """The API server was asked about a token: it was `valid`, `invalid`, or there was an `error`."""
        self._token_reviews.labels(result).inc()

    def refused_connection(self, reason: str) -> None:
        """A connection was closed for one of the reasons of the metric: rate, address, total, timeout or crowd."""
        self._refused_connections.labels(reason).inc()

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        self.families.append(Family(name, "counter", tuple(labels), text))
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        self.families.append(Family(name, "gauge", tuple(labels), text))
        return Gauge(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
        self.families.append(Family(name, "histogram", tuple(labels), text))
        return Histogram(name, text, labels, registry=self._registry, buckets=buckets)
