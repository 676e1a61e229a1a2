"""The counters of jobs: rounds, interruptions, failures, ends, and the time that they spend.

Each leader counts what it sees, so that a sum over replicas has everything once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Histogram

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.monitoring.job_reasons import FAILURE_REASONS, failure_reason
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.reporting.goodput import Account, Activity, Spent
from elastic_pytorch_operator.planning.reporting.interruption import PHASES, PREPARE

ACTIVITIES = tuple(activity.value for activity in Activity)


class SpentTime:
    """Counts the time of accounts; if they move counted time, later time makes up for it."""

    def __init__(self, counter: Callable[[str, str, Sequence[str]], Counter]) -> None:
        labels = ("namespace", "activity")
        self._seconds = counter(
            "elastic_pytorch_spent_seconds_total",
            f"Time of jobs by what it was spent on: {', '.join(ACTIVITIES)} "
            "(docs/use/observability.md).",
            labels,
        )
        self._process_seconds = counter(
            "elastic_pytorch_spent_process_seconds_total",
            "The same for all processes of the jobs together, which is GPU-seconds where each "
            "process has a GPU; and of spares.",
            labels,
        )
        self._owed: dict[tuple[Counter, str, str], float] = {}

    def series(self, namespace: str) -> Iterator[tuple[Counter, tuple[str, ...]]]:
        for activity in ACTIVITIES:
            yield self._seconds, (namespace, activity)
            yield self._process_seconds, (namespace, activity)

    def forget(self, namespace: str) -> None:
        for key in [key for key in list(self._owed) if key[1] == namespace]:
            self._owed.pop(key, None)

    def count(self, namespace: str, before: Account | None, after: Account | None) -> None:
        if before is None or after is None:
            return
        for activity, spent in after.spent.items():
            if (known := before.spent.get(activity, Spent())) is spent:
                continue
            self._add(self._seconds, namespace, activity.value, spent.seconds - known.seconds)
            more = spent.process_seconds - known.process_seconds
            self._add(self._process_seconds, namespace, activity.value, more)

    def _add(self, counter: Counter, namespace: str, activity: str, seconds: float) -> None:
        more = seconds - self._owed.pop((counter, namespace, activity), 0.0)
        if more < 0:
            self._owed[counter, namespace, activity] = -more
        else:
            counter.labels(namespace, activity).inc(more)


# Every series begins at 0, because Prometheus' `increase()` ignores a counter's first sample.
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
INTERRUPTION_BUCKETS = (0.1, 0.25, 0.5, 1, 1.5, 2, 4, 6, 10, 20, 30, 60, 120, 300)


class JobCounts:
    def __init__(
        self,
        counter: Callable[[str, str, Sequence[str]], Counter],
        histogram: Callable[[str, str, Sequence[str], Sequence[float]], Histogram],
    ) -> None:
        self._rounds = counter(
            "elastic_pytorch_rounds_declared_total",
            "Rounds declared, by reason (docs/internals/rounds.md).",
            ("namespace", "reason"),
        )
        self._interruption = histogram(
            "elastic_pytorch_interruption_seconds",
            "Time from a disturbance of a group to its next training step, by the reason of the "
            "round.",
            ("reason",),
            INTERRUPTION_BUCKETS,
        )
        self._phases = histogram(
            "elastic_pytorch_interruption_phase_seconds",
            f"Time of each phase of an interruption: {', '.join(PHASES)} "
            "(docs/internals/rounds.md). Phases that are not known are left out. "
            f"{PREPARE} counts before a first round, too.",
            ("phase",),
            INTERRUPTION_BUCKETS,
        )
        self._interrupted = counter(
            "elastic_pytorch_interrupted_seconds_total",
            "Time of interruptions that are over, by the reason of the round.",
            ("namespace", "reason"),
        )
        self._steps_lost = counter(
            "elastic_pytorch_steps_lost_total",
            "Training steps repeated after a change of the group.",
            ("namespace",),
        )
        self.spent_time = SpentTime(counter)
        self._failures = counter(
            "elastic_pytorch_failures_total",
            "Root causes of failures by kind: Exit (an exception, or another exit code), Signal, "
            "OutOfMemory, Pod (its container failed), Hang, Killed (from outside; not counted "
            "against the job).",
            ("namespace", "kind"),
        )
        self._completed = counter(
            "elastic_pytorch_jobs_completed_total",
            "Jobs that have become complete while this replica led.",
            ("namespace",),
        )
        self._failed = counter(
            "elastic_pytorch_jobs_failed_total",
            "Jobs that have failed while this replica led, by the reason of the condition Failed: "
            f"{', '.join(FAILURE_REASONS)}.",
            ("namespace", "reason"),
        )
        for reason in ROUND_REASONS:
            self._interruption.labels(reason)
        for phase in PHASES:
            self._phases.labels(phase)

    def series(self, namespace: str) -> Iterator[tuple[Counter, tuple[str, ...]]]:
        yield self._steps_lost, (namespace,)
        yield self._completed, (namespace,)
        for reason in ROUND_REASONS:
            yield self._rounds, (namespace, reason)
            yield self._interrupted, (namespace, reason)
        for reason in FAILURE_REASONS:
            yield self._failed, (namespace, reason)
        for kind in FAILURE_KINDS:
            yield self._failures, (namespace, kind)
        yield from self.spent_time.series(namespace)

    def count_plan(self, namespace: str, before: Memory, todo: Plan) -> None:
        if todo.round is not None:
            self._rounds.labels(namespace, todo.round.reason).inc()
        if todo.set_up_seconds is not None:
            self._phases.labels(PREPARE).observe(todo.set_up_seconds)
        self.spent_time.count(namespace, before.account, todo.memory.account)
        resumed, last = todo.resumed, todo.memory.budget.last
        if resumed is not None and resumed.seconds is not None:
            self._interruption.labels(resumed.reason).observe(resumed.seconds)
            for phase, seconds in resumed.phases.items():
                self._phases.labels(phase).observe(seconds)
            self._interrupted.labels(namespace, resumed.reason).inc(resumed.seconds)
            self._steps_lost.labels(namespace).inc(resumed.steps_lost or 0)
        if last is not None and last is not before.budget.last:
            self._failures.labels(namespace, last.kind).inc()

    def count_end(self, namespace: str, status: Mapping[str, Any]) -> None:
        reason = failure_reason(status)
        if reason is None:
            self._completed.labels(namespace).inc()
        else:
            self._failed.labels(namespace, reason).inc()
