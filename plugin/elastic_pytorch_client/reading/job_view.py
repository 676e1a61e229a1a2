"""A job as its manifest tells it: parsed once, so that what shows or judges it need not know the API's shapes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.durations import seconds_since, spell
from elastic_pytorch_client.reading.goodput import Goodput, view_goodput
from elastic_pytorch_client.reading.interruption_phases import PHASES
from elastic_pytorch_client.reading.nodes import LeftOutNode
from elastic_pytorch_client.reading.stragglers import Straggler, view_stragglers
from elastic_pytorch_client.reading.text import parse_number, parse_ranges, parse_time

RUNNING = "Running"


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of `status.conditions`."""

    type: str
    true: bool
    reason: str
    message: str
    since: datetime | None
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """One entry of `status.workers`, or a pod that is none.

    Attributes:
        name: of its pod.
        index: among the job's workers; its replacement gets the same.
        rank: in the current group; None if it is not in it, if stock torchrun gives the ranks, or if it is not known.
        node: empty until it has one.
        state: one word.
        listed: whether the status lists it; otherwise its rank is not known.
        processes: that it would run, if that number keeps it out of the group.
        preparing_since: when the set-up that goes on has begun; None: none does.
    """

    name: str
    index: int
    rank: int | None
    node: str
    state: str
    listed: bool = True
    processes: int | None = None
    preparing_since: datetime | None = None

    def describe_state(self, now: datetime) -> str:
        """Its state, with the time that a set-up has taken by now."""
        since = self.preparing_since
        return f"{self.state} ({spell(seconds_since(since, now))})" if since else self.state


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training is, as far as its script says; None: it does not."""

    step: int | None = None
    total: int | None = None
    loss: float | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    commit_every_steps: int | None = None
    seconds_left: int | None = None  # at the present speed
    metrics: Mapping[str, float] = field(default_factory=dict)  # other numbers that the script reports, by name

    @property
    def fraction(self) -> float | None:
        """Of the way to the last step, from 0 to 1."""
        if self.step is None or not self.total:
            return None
        return min(1.0, self.step / self.total)

    def name_metrics(self, limit: int) -> list[str]:
        """The first metrics by name, each with its value, and how many more there are."""
        told = [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        return told if len(told) <= limit else [*told[:limit], f"{len(told) - limit} more metrics"]


@dataclass(frozen=True, slots=True)
class Interruption:
    """An entry of `status.recentInterruptions`: a failure, a loss or a resize has interrupted the training. Old ones are condensed.

    Attributes:
        cause: one word.
        seconds: what it took, or all of them together.
        steps_lost: steps done again.
        phases: the seconds of each phase that is known, in their order.
        slowest: the phase that took longest; empty if none is known.
        round: the round that trains since then.
        ended: when it was over; None: not known.
        count: how many there were; above 1: the others are the sums of all, and of the last one.
        before: how many workers trained before; None: not known.
        after: how many train since then; None: not known.
    """

    cause: str
    seconds: float | None
    steps_lost: int | None
    phases: Mapping[str, float] = field(default_factory=dict)
    slowest: str = ""
    round: int = 0
    ended: datetime | None = None
    count: int = 1
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class RootCause:
    """`status.rootCause`: the last failure that counted."""

    worker: str
    rank: int | None
    exit_code: int | None
    signal: str
    message: str
    node: str = ""
    pid: int | None = None
    time: datetime | None = None

    @property
    def where(self) -> str:
        """The worker, and what is known of the process, its node and the time."""
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


@dataclass(frozen=True, slots=True)
class JobView:
    """A job.

    Attributes:
        wanted: `spec.replicas`.
        minimum: `spec.minReplicas`; of a job of a fixed size, its size.
        elastic: whether it has a minReplicas; without, it trains with all wanted workers or waits.
        backoff_limit: `failurePolicy.backoffLimit`; None: no limit.
        state: the conditions in one word.
        ready: workers that train, or are ready to, without spares.
        world: processes that train together, 0 while nothing trains.
        failures: those that have counted since the last progress.
        total_failures: those that have counted since the job began.
        interruptions: how often a group trained again.
        seen: whether the operator has looked at the newest spec.
        workers: those that the status lists. Of a large job these are not all: `reading.pod_workers` adds the others.
        unlisted: the indexes of the others, by state.
        refusals: what the API server does not take of what the operator writes for the job, each in a sentence.
        scaling: what the last workers added, and what autoscale does about it; empty: nothing is known.
        stragglers: the ranks that are slow, the slowest first.
        left_out_nodes: nodes that have failed their checks, so that the job does without them.
        spares: `spec.spares`, pods that are to be ready to take over.
        ready_spares: `status.readySpares`, those that are.
        unit: `spec.unitReplicas`.
        goodput: what its time was spent on.
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
    max_failures: int
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
    recent_interruptions: tuple[Interruption, ...]
    root_cause: RootCause | None
    workers: tuple[Worker, ...]
    conditions: tuple[Condition, ...]
    unlisted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    scaling: str = ""
    stragglers: tuple[Straggler, ...] = ()
    left_out_nodes: tuple[LeftOutNode, ...] = ()
    spares: int = 0
    ready_spares: int = 0
    unit: int = 1
    goodput: Goodput = field(default_factory=Goodput)

    def condition(self, type_: str) -> Condition | None:
        """The condition of a type, None if there is none."""
        return next((c for c in self.conditions if c.type == type_), None)

    def holds(self, type_: str) -> bool:
        """Whether a condition is there and true."""
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
        """Whether it is to be suspended, and workers of it are still there."""
        return self.suspended and not self.ended and not self.holds("Suspended")

    @property
    def members(self) -> tuple[Worker, ...]:
        """The workers of the current group that are known, by rank; by index where the ranks are not known."""
        if self.backend != names.BACKEND_OPERATOR:
            return tuple(w for w in self.workers if w.state == RUNNING)
        ranked = sorted((w for w in self.workers if w.rank is not None), key=lambda w: w.rank or 0)
        return (*ranked, *(w for w in self.workers if not w.listed and w.state == RUNNING))

    @property
    def last_interruption(self) -> Interruption | None:
        """The newest interruption that is over, None if there was none."""
        return self.recent_interruptions[-1] if self.recent_interruptions else None

    @property
    def size(self) -> int:
        """The number of workers of the current group, with those that are known only by their indexes."""
        return len(self.members) + len(self.unlisted.get(RUNNING, ()))

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
        """Whether a group trains that is not to change its size."""
        degraded = self.condition("Degraded")
        smaller = degraded is not None and degraded.true and degraded.reason != names.CHECKPOINTS_FAILING
        return self.holds("Running") and not self.holds("Resizing") and not smaller


def view_job(manifest: Mapping[str, Any]) -> JobView:
    """A job's manifest as a view; what is missing has the API's default."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    wanted = int(spec.get("replicas", 1))
    progress, cause = (status.get(part) or {} for part in ("progress", "rootCause"))
    unlisted = status.get("unlistedWorkers") or {}
    return JobView(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "default")),
        uid=str(metadata.get("uid", "")),
        created=parse_time(metadata.get("creationTimestamp")),
        wanted=wanted,
        minimum=int(spec.get("minReplicas", wanted)),
        maximum=int(spec.get("maxReplicas", wanted)),
        elastic="minReplicas" in spec,
        suspended=bool(spec.get("suspend", False)),
        managed_by=str(spec.get("managedBy", "")),
        backend=str((spec.get("rendezvous") or {}).get("backend", names.BACKEND_OPERATOR)),
        max_failures=int((spec.get("failurePolicy") or {}).get("maxFailures", 3)),
        backoff_limit=_whole((spec.get("failurePolicy") or {}).get("backoffLimit")),
        allowed=tuple(sorted((spec.get("resizePolicy") or {}).get("allowedReplicas") or ())),
        state=str(status.get("state", "Pending")),
        ready=int(status.get("readyReplicas", 0)),
        world=int(status.get("worldSize", 0)),
        round=int(status.get("round", 0)),
        failures=int(status.get("failures", 0)),
        total_failures=int(status.get("totalFailures", 0)),
        interruptions=int(status.get("interruptions", 0)),
        seen=int(status.get("observedGeneration", 0)) >= int(metadata.get("generation", 0)) and bool(status),
        started=parse_time(status.get("startTime")),
        completed=parse_time(status.get("completionTime")),
        progress=Progress(
            step=_whole(progress.get("step")),
            total=_whole(progress.get("total")),
            loss=parse_number(progress.get("loss")),
            steps_per_second=parse_number(progress.get("stepsPerSecond")),
            checkpoint_step=_whole(progress.get("checkpointStep")),
            commit_every_steps=_whole(progress.get("commitEverySteps")),
            seconds_left=_whole(progress.get("estimatedRemainingSeconds")),
            metrics=_view_metrics(progress.get("metrics") or ()),
        ),
        goodput=view_goodput(status),
        recent_interruptions=tuple(map(_view_interruption, status.get("recentInterruptions") or ())),
        root_cause=RootCause(
            worker=str(cause.get("worker", "")),
            rank=_whole(cause.get("rank")),
            exit_code=_whole(cause.get("exitCode")),
            signal=str(cause.get("signal", "")),
            message=str(cause.get("message", "")),
            node=str(cause.get("node", "")),
            pid=_whole(cause.get("pid")),
            time=parse_time(cause.get("time")),
        )
        if cause
        else None,
        workers=tuple(
            Worker(
                name=str(worker["name"]),
                index=int(worker.get("index", 0)),
                rank=_whole(worker.get("rank")),
                node=str(worker.get("node", "")),
                state=str(worker.get("state", "")),
                processes=worker.get("processes"),
                preparing_since=parse_time(worker.get("preparingSince")),
            )
            for worker in status.get("workers") or ()
        ),
        conditions=tuple(
            Condition(
                type=str(condition["type"]),
                true=condition.get("status") == "True",
                unknown=condition.get("status") == "Unknown",
                reason=str(condition.get("reason", "")),
                message=str(condition.get("message", "")),
                since=parse_time(condition.get("lastTransitionTime")),
            )
            for condition in status.get("conditions") or ()
        ),
        unlisted={state: parse_ranges(str(text)) for state, text in (unlisted.get("indexes") or {}).items()},
        refusals=tuple(str(said) for said in status.get("refusals") or ()),
        scaling=str((status.get("scaling") or {}).get("message", "")),
        stragglers=view_stragglers(status),
        left_out_nodes=_view_left_out_nodes(status),
        spares=int(spec.get("spares", 0)),
        ready_spares=int(status.get("readySpares", 0)),
        unit=int(spec.get("unitReplicas", 1)),
    )


def _view_left_out_nodes(status: Mapping[str, Any]) -> tuple[LeftOutNode, ...]:
    """Returns the nodes that a status lists, the last one last."""
    return tuple(
        LeftOutNode(str(entry.get("node", "")), str(entry.get("worker", "")), str(entry.get("message", "")))
        for entry in status.get("leftOutNodes") or ()
    )


def _view_metrics(metrics: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    values = {str(metric.get("name", "")): parse_number(metric.get("value")) for metric in metrics}
    return {name: value for name, value in values.items() if value is not None}


def _view_interruption(interruption: Mapping[str, Any]) -> Interruption:
    seconds = {phase: parse_number(interruption.get("phaseSeconds", {}).get(phase)) for phase in PHASES}
    return Interruption(
        cause=str(interruption.get("cause", "")),
        seconds=parse_number(interruption.get("seconds")),
        steps_lost=_whole(interruption.get("stepsLost")),
        phases={phase: taken for phase, taken in seconds.items() if taken is not None},
        slowest=str(interruption.get("slowestPhase", "")),
        round=int(interruption.get("round", 0)),
        ended=parse_time(interruption.get("time")),
        count=int(interruption.get("count", 1)),
        before=_whole(interruption.get("from")),
        after=_whole(interruption.get("to")),
    )


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None
