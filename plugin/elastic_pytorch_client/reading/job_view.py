"""A job's manifest, parsed once, so that other code need not know the API's shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.goodput import Goodput, view_goodput
from elastic_pytorch_client.reading.history import HistoryEntry, view_history
from elastic_pytorch_client.reading.stragglers import Straggler, view_stragglers
from elastic_pytorch_client.reading.text import (
    parse_number,
    parse_ranges,
    parse_time,
    parse_whole,
    seconds_since,
    spell,
)

RUNNING = "Running"
IN_GROUP = (RUNNING, "Saving")  # the states of workers that have a rank
MAX_LEFT_SECONDS = 10 * 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of `status.conditions`; `since` is its last transition."""

    type: str
    true: bool
    reason: str
    message: str
    since: datetime | None
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """An entry of `status.workers`, or a pod that the status does not list, whose rank is unknown.

    Other unknown values are None or empty.
    """

    name: str
    index: int
    rank: int | None
    node: str
    state: str
    listed: bool = True
    processes: int | None = None
    state_since: datetime | None = None

    @property
    def rank_or_index(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else f"index {self.index}"

    def describe_state(self, now: datetime) -> str:
        if not self.state_since:
            return self.state
        return f"{self.state} ({spell(seconds_since(self.state_since, now))})"


@dataclass(frozen=True, slots=True)
class Progress:
    """`status.progress`: what the script reports, None where it reports nothing."""

    step: int | None = None
    total: int | None = None
    loss: float | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def fraction(self) -> float | None:
        """The part of the steps that is done, from 0 to 1."""
        if self.step is None or not self.total:
            return None
        return min(1.0, self.step / self.total)

    @property
    def seconds_left(self) -> int | None:
        """The time of the rest at the last known speed; None: unknown, or more than ten years."""
        if self.step is None or self.total is None or not self.steps_per_second:
            return None
        seconds = max(0, self.total - self.step) / self.steps_per_second
        return round(seconds) if seconds <= MAX_LEFT_SECONDS else None

    def name_metrics(self, limit: int) -> list[str]:
        shown = [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        more = f"{len(shown) - limit} more metrics"
        return shown if len(shown) <= limit else [*shown[:limit], more]


@dataclass(frozen=True, slots=True)
class RootCause:
    """`status.rootCause`: the last failure that counted. Unknown values are None or empty."""

    worker: str
    rank: int | None
    exit_code: int | None
    signal: str
    message: str
    node: str = ""
    pid: int | None = None
    time: datetime | None = None

    @property
    def hang(self) -> bool:
        """Whether a rank hung: it has neither an exit code nor a signal, a lost pod no rank."""
        return self.exit_code is None and not self.signal and self.rank is not None

    @property
    def how(self) -> str:
        """How the process ended, or that it hung; empty: only the message says it."""
        if self.signal:
            return f"signal {self.signal}"
        if self.exit_code is not None:
            return f"exit code {self.exit_code}"
        return "a hang" if self.hang else ""

    @property
    def where(self) -> str:
        parts = [self.worker]
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        if self.pid is not None:
            parts.append(f"process {self.pid}")
        if self.node:
            parts.append(f"on {self.node}")
        if self.time is not None:
            parts.append(f"at {self.time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
        return ", ".join(parts)

    @property
    def where_and_how(self) -> str:
        return ", ".join(filter(None, (self.where, self.how)))


@dataclass(frozen=True, slots=True)
class JobView:
    """A job's spec and status, parsed.

    An attribute without a text is the field of that name; a time in the future is None. Its parts
    have the fields of the status, too, in Python's notation, such as `checkpoint_step`.

    Attributes:
        wanted: `spec.replicas`.
        minimum: `spec.minReplicas`, or the size of a job of a fixed size.
        maximum: `spec.maxReplicas`, or the size of a job of a fixed size.
        elastic: whether it has a minReplicas.
        managed_by: `spec.managedBy`; empty: the operator.
        backend: `spec.rendezvous.backend`.
        max_failures: `failurePolicy.maxFailures`; None: only its template may have it.
        backoff_limit: `failurePolicy.backoffLimit`; None: no limit.
        allowed: `resizePolicy.allowedReplicas`, rising.
        ready: workers that train, or are ready to, without spares.
        world: processes that train together, 0 while nothing trains.
        failures: the failures that have counted since the last progress.
        total_failures: the failures that have counted since the job began.
        seen: whether the operator has read the newest spec.
        workers: the workers that the status lists, which are not all of a large job.
        unlisted: the indexes of the workers that the status does not list, by state.
        unit: `spec.unitReplicas`.
    """

    name: str
    namespace: str
    uid: str
    created: datetime | None
    wanted: int
    minimum: int
    maximum: int
    elastic: bool
    suspended: bool
    managed_by: str
    backend: str
    max_failures: int | None
    backoff_limit: int | None
    allowed: tuple[int, ...]
    state: str
    ready: int
    world: int
    round: int
    failures: int
    total_failures: int
    interruptions: int
    seen: bool
    started: datetime | None
    completed: datetime | None
    progress: Progress
    history: tuple[HistoryEntry, ...]
    root_cause: RootCause | None
    workers: tuple[Worker, ...]
    conditions: tuple[Condition, ...]
    unlisted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    spares: int = 0
    ready_spares: int = 0
    unit: int = 1
    goodput: Goodput = field(default_factory=Goodput)

    def condition(self, type_: str) -> Condition | None:
        """Returns the condition of a type, None if there is none."""
        return next((c for c in self.conditions if c.type == type_), None)

    def holds(self, type_: str) -> bool:
        """Returns whether the job has a condition of a type, and it is true."""
        found = self.condition(type_)
        return found is not None and found.true

    @property
    def complete(self) -> bool:
        """Whether the job has ended well."""
        return self.holds("Complete")

    @property
    def failed(self) -> bool:
        """Whether the job has ended badly."""
        return self.holds("Failed")

    @property
    def ended(self) -> bool:
        """Whether the job has ended, and stays so."""
        return self.complete or self.failed

    @property
    def stopping(self) -> bool:
        """Whether the job is to be suspended, and has workers still."""
        return self.suspended and not self.ended and not self.holds("Suspended")

    @property
    def members(self) -> tuple[Worker, ...]:
        """The known workers of the current group by rank; without ranks, by index."""
        if self.backend != names.BACKEND_OPERATOR:
            return tuple(w for w in self.workers if w.state == RUNNING)
        ranked = sorted((w for w in self.workers if w.rank is not None), key=lambda w: w.rank or 0)
        return (*ranked, *(w for w in self.workers if not w.listed and w.state in IN_GROUP))

    @property
    def recent_interruptions(self) -> tuple[HistoryEntry, ...]:
        """The changes of the group that interrupted the training, oldest first."""
        return tuple(entry for entry in self.history if entry.seconds is not None)

    @property
    def last_interruption(self) -> HistoryEntry | None:
        """The newest interruption that is over, None if there was none."""
        return next(reversed(self.recent_interruptions), None)

    @property
    def size(self) -> int:
        """The number of workers of the current group, with those that only have an index."""
        return len(self.members) + sum(len(self.unlisted.get(state, ())) for state in IN_GROUP)

    @property
    def sizes(self) -> Sequence[int]:
        """The sizes that the group may have, rising."""
        return self.allowed or range(self.minimum, self.maximum + 1, self.unit)

    @property
    def described_spares(self) -> str:
        """How many spares are ready; empty: it keeps none."""
        if not self.spares:
            return ""
        return f"{self.ready_spares} of {self.spares} spare{'' if self.spares == 1 else 's'} ready"

    @property
    def at_wanted_size(self) -> bool:
        """Whether a group of the wanted size trains."""
        degraded = self.condition("Degraded")
        of_saves = (names.CHECKPOINTS_FAILING, names.CHECKPOINTS_SLOW)
        smaller = degraded is not None and degraded.true and degraded.reason not in of_saves
        return self.holds("Running") and not self.holds("Resizing") and not smaller


def view_job(manifest: Mapping[str, Any]) -> JobView:
    """A job's view; missing fields have the API's default, or an unknown value of its template."""
    metadata, status = (manifest.get(part) or {} for part in ("metadata", "status"))
    spec = manifest.get("spec") or {}
    policy = spec.get("failurePolicy") or {}
    wanted = spec.get("replicas", 1)
    progress, cause = (status.get(part) or {} for part in ("progress", "rootCause"))
    return JobView(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", "default"),
        uid=metadata.get("uid", ""),
        created=parse_time(metadata.get("creationTimestamp")),
        wanted=wanted,
        minimum=spec.get("minReplicas", wanted),
        maximum=spec.get("maxReplicas", wanted),
        elastic="minReplicas" in spec,
        suspended=spec.get("suspend", False),
        managed_by=spec.get("managedBy", ""),
        backend=(spec.get("rendezvous") or {}).get("backend", names.BACKEND_OPERATOR),
        max_failures=parse_whole(policy.get("maxFailures", None if spec.get("templateRef") else 3)),
        backoff_limit=parse_whole(policy.get("backoffLimit")),
        allowed=tuple(sorted((spec.get("resizePolicy") or {}).get("allowedReplicas") or ())),
        state=status.get("state", "Pending"),
        ready=status.get("readyReplicas", 0),
        world=status.get("worldSize", 0),
        round=status.get("round", 0),
        failures=status.get("failures", 0),
        total_failures=status.get("totalFailures", 0),
        interruptions=status.get("interruptions", 0),
        seen=bool(status) and status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        started=parse_time(status.get("startTime")),
        completed=parse_time(status.get("completionTime")),
        progress=Progress(
            step=parse_whole(progress.get("step")),
            total=parse_whole(progress.get("total")),
            loss=parse_number(progress.get("loss")),
            steps_per_second=parse_number(progress.get("stepsPerSecond")),
            checkpoint_step=parse_whole(progress.get("checkpointStep")),
            metrics=_view_metrics(progress.get("metrics") or {}),
        ),
        goodput=view_goodput(status),
        history=view_history(status.get("history") or ()),
        root_cause=RootCause(
            worker=cause.get("worker", ""),
            rank=parse_whole(cause.get("rank")),
            exit_code=parse_whole(cause.get("exitCode")),
            signal=cause.get("signal", ""),
            message=cause.get("message", ""),
            node=cause.get("node", ""),
            pid=parse_whole(cause.get("pid")),
            time=parse_time(cause.get("time")),
        )
        if cause
        else None,
        workers=tuple(
            Worker(
                name=worker["name"],
                index=worker.get("index", 0),
                rank=parse_whole(worker.get("rank")),
                node=worker.get("node", ""),
                state=worker.get("state", ""),
                processes=worker.get("processes"),
                state_since=parse_time(worker.get("stateSince")),
            )
            for worker in status.get("workers") or ()
        ),
        conditions=tuple(
            Condition(
                type=condition["type"],
                true=condition.get("status") == "True",
                unknown=condition.get("status") == "Unknown",
                reason=condition.get("reason", ""),
                message=condition.get("message", ""),
                since=parse_time(condition.get("lastTransitionTime")),
            )
            for condition in status.get("conditions") or ()
        ),
        unlisted={
            state: parse_ranges(text)
            for state, text in (status.get("unlistedWorkers") or {}).items()
        },
        refusals=tuple(status.get("refusals") or ()),
        stragglers=view_stragglers(status),
        spares=spec.get("spares", 0),
        ready_spares=status.get("readySpares", 0),
        unit=spec.get("unitReplicas", 1),
    )


def _view_metrics(metrics: Mapping[str, str]) -> dict[str, float]:
    values = {name: parse_number(text) for name, text in metrics.items()}
    return {name: value for name, value in values.items() if value is not None}
