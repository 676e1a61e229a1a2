"""The operator's metrics, except for those of jobs, which are in `job_counts` and `job_gauges`.

Queue, reconciles and requests have the names of controller-runtime and client-go. These modules are
the source of docs/reference/metrics.md.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics import disable_created_metrics

from elastic_pytorch_operator import __version__
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.job_counts import JobCounts
from elastic_pytorch_operator.monitoring.job_gauges import JobGauges
from elastic_pytorch_operator.planning.memory import Memory, Plan

# Half of the text, which Prometheus does not read in this format.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTROLLER = "elasticpytorchjob"
NO_ANSWER = "<error>"  # client-go's word instead of a status code

OBJECT_KINDS = (names.KIND, "Pod", "Node", kueue.WORKLOAD)

WORK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# For which the counts of a namespace without jobs are exported.
KEEP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: str  # counter, gauge or histogram
    labels: tuple[str, ...]
    text: str


class Metrics:
    def __init__(
        self, *, per_job: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.families: list[Family] = []
        self._clock = clock
        self._namespaces: dict[str, float] = {}  # when each exported one last had a job
        self._lock = threading.Lock()  # of `_namespaces`
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._define_queue()
        self._define_reconciles()
        self._job_gauges = JobGauges(self._gauge, per_job=per_job)
        self._job_counts = JobCounts(self._counter, self._histogram)
        self._define_agents()
        self._define_operator()
        self._begin_at_zero()
        self._info.labels(__version__).set(1)

    def _define_queue(self) -> None:
        name = ("name",)
        self._queue_depth = self._gauge(
            "workqueue_depth", "Jobs that wait for a reconcile, due or scheduled.", name
        )
        adds = self._counter("workqueue_adds_total", "Jobs put into the queue.", name)
        self.queued = adds.labels(CONTROLLER).inc
        retries = self._counter(
            "workqueue_retries_total", "Jobs put back after a failed reconcile.", name
        )
        self.retried = retries.labels(CONTROLLER).inc
        wait = self._histogram(
            "workqueue_queue_duration_seconds",
            "Time from when a job was due until its reconcile began.",
            name,
            WORK_BUCKETS,
        )
        self.taken = wait.labels(CONTROLLER).observe
        work = self._histogram(
            "workqueue_work_duration_seconds",
            "Time from the start to the end of work on a job.",
            name,
            WORK_BUCKETS,
        )
        self.worked = work.labels(CONTROLLER).observe
        self._queue_longest = self._gauge(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest running reconcile, or of a write that it has requested.",
            name,
        )

    def _define_reconciles(self) -> None:
        self._reconciles = self._counter(
            "controller_runtime_reconcile_total",
            "Reconciles by result: success, error, or requeue_after (scheduled again).",
            ("controller", "result"),
        )
        errors = self._counter(
            "controller_runtime_reconcile_errors_total",
            "Reconciles and writes that failed and are retried.",
            ("controller",),
        )
        self.write_failed = errors.labels(CONTROLLER).inc
        self._reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles.",
            ("controller",),
            WORK_BUCKETS,
        ).labels(CONTROLLER)
        self._requests = self._counter(
            "rest_client_requests_total",
            "Requests to the API server, except watches, by status code "
            f"({NO_ANSWER}: no response) and method.",
            ("code", "method"),
        )
        self._leader = self._gauge(
            "leader_election_master_status", "1 on the leader, 0 on a standby replica.", ("name",)
        )

    def _define_agents(self) -> None:
        self._agent_requests = self._counter(
            "elastic_pytorch_agent_requests_total",
            "Requests of agents by kind (stream, heartbeat, round, other) and status code "
            "(docs/internals/protocol.md). Heartbeats and rounds on a stream count one by one.",
            ("request", "code"),
        )
        self._agents = self._gauge(
            "elastic_pytorch_agents_connected",
            "Agents that sent a heartbeat within the last ten seconds.",
        )
        self._streams = self._gauge(
            "elastic_pytorch_agent_streams_open",
            "Open streams of agents, which wait for the next round (docs/internals/protocol.md).",
        )
        self._token_reviews = self._counter(
            "elastic_pytorch_token_reviews_total",
            "Checks of agents' tokens by result: signature (valid by its signature), or what the "
            "API server's review says: valid, invalid, or error (no answer).",
            ("result",),
        )
        self._refused_connections = self._counter(
            "elastic_pytorch_connections_refused_total",
            "Connections to the agents' port that were refused, by reason. files: the operator "
            "reserves its last 256 files. rate, address: the address opens too many per second, or "
            "has too many open. total, crowd: all addresses together have too many open, or too "
            "many waiting. timeout: no agent authenticated in time.",
            ("reason",),
        )

    def _define_operator(self) -> None:
        self._unreadable = self._gauge(
            "elastic_pytorch_unreadable_objects",
            "Objects that the operator cannot read and ignores, by kind. The log names each of "
            "them once.",
            ("kind",),
        )
        self._unavailable = self._gauge(
            "elastic_pytorch_namespace_unavailable",
            "1 for each namespace of watchNamespaces that the operator cannot list or watch, while "
            "it serves the others.",
            ("namespace",),
        )
        self._certificate = self._gauge(
            "elastic_pytorch_certificate_expiration_timestamp_seconds",
            "When the certificate that the leader shows to agents expires, seconds since the "
            "epoch. It is valid for 90 days, and renewed after 60.",
            ("name",),
        )
        self._ready = self._gauge(
            "elastic_pytorch_operator_ready",
            "1 on each replica that is ready, as /readyz says; else 0.",
        )
        self._memory_limit = self._gauge(
            "elastic_pytorch_operator_memory_limit_bytes",
            "The memory limit of the operator's container; +Inf if it has none.",
        )
        self._info = self._gauge(
            "elastic_pytorch_operator_info", "Always 1, with the operator's version.", ("version",)
        )

    def _begin_at_zero(self) -> None:
        for result in ("success", "error", "requeue_after"):
            self._reconciles.labels(CONTROLLER, result)
        for result in ("signature", "valid", "invalid", "error"):
            self._token_reviews.labels(result)
        for refusal in ("files", "rate", "address", "total", "crowd", "timeout"):
            self._refused_connections.labels(refusal)

    def render(self, gauges: GaugeValues) -> bytes:
        """The text that Prometheus reads; any thread may make it, as many namespaces take long."""
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
        self._certificate.clear()
        if gauges.leading and gauges.certificate_ends_at is not None:
            self._certificate.labels(names.OPERATOR).set(gauges.certificate_ends_at)
        self._ready.set(gauges.ready)
        self._memory_limit.set(gauges.memory_limit_bytes)
        self._job_gauges.render(gauges.jobs, gauges.time)
        self._keep_namespaces({key.namespace for key, _ in gauges.jobs})
        return generate_latest(self._registry)

    def _keep_namespaces(self, present: Iterable[str]) -> None:
        now = self._clock()
        for namespace in present:
            self._begin_namespace(namespace, now)
        for namespace in list(self._namespaces):
            with self._lock:
                if now - self._namespaces[namespace] > KEEP_SECONDS:
                    del self._namespaces[namespace]
                    for counter, labels in self._job_counts.series(namespace):
                        counter.remove(*labels)
                    self._job_counts.spent_time.forget(namespace)

    def _begin_namespace(self, namespace: str, now: float) -> None:
        with self._lock:
            if namespace not in self._namespaces:
                for counter, labels in self._job_counts.series(namespace):
                    counter.labels(*labels)
            self._namespaces[namespace] = now

    def reconciled(self, result: str, seconds: float) -> None:
        self._reconciles.labels(CONTROLLER, result).inc()
        self._reconcile_seconds.observe(seconds)
        if result == "error":
            self.write_failed()

    def requested(self, method: str, code: int) -> None:
        self._requests.labels(str(code) if code else NO_ANSWER, method).inc()

    def decided(self, namespace: str, before: Memory, todo: Plan) -> None:
        self._begin_namespace(namespace, self._clock())
        self._job_counts.count_plan(namespace, before, todo)

    def ended(self, namespace: str, status: Mapping[str, Any]) -> None:
        self._begin_namespace(namespace, self._clock())
        self._job_counts.count_end(namespace, status)

    def answered(self, request: str, code: int) -> None:
        """`request`: `stream`, `heartbeat`, `round` or `other`."""
        self._agent_requests.labels(request, str(code)).inc()

    def reviewed(self, result: str) -> None:
        self._token_reviews.labels(result).inc()

    def refused_connection(self, reason: str) -> None:
        self._refused_connections.labels(reason).inc()

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        self.families.append(Family(name, "counter", tuple(labels), text))
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        self.families.append(Family(name, "gauge", tuple(labels), text))
        return Gauge(name, text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> Histogram:
        self.families.append(Family(name, "histogram", tuple(labels), text))
        return Histogram(name, text, labels, registry=self._registry, buckets=buckets)
