"""What the gauges show at one scrape."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobFigures:
    """What is exported for one job, on request.

    Attributes:
        namespace: of the job.
        name: of the job.
        wanted: spec.replicas.
        ready: status.readyReplicas.
        world_size: status.worldSize, the processes that train together.
        step: the newest training step that was reported; None if there is none.
        step_seconds: of a training step; None if it does not train, or has not reported two.
        efficiency: what each of the last workers adds, as a part of what each worker before them does; None if it is not known.
    """

    namespace: str
    name: str
    wanted: int
    ready: int
    world_size: int
    step: int | None
    step_seconds: float | None
    efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class GaugeValues:
    """The values of the gauges at one scrape.

    Attributes:
        leading: whether this replica leads. Only then the rest is exported, so that a sum over replicas counts nothing twice.
        jobs: by namespace and state. The namespaces that have jobs are its keys.
        workers: of jobs that have not ended, by namespace and state.
        pending_seconds: by namespace, for how long the job has been Pending that has been so for longest.
        stragglers: ranks that are slow, by namespace.
        figures: of each job: they are exported on request only.
        agents: that have sent a heartbeat of late.
        streams: of agents, that are open.
        queued: jobs that await a reconcile by this replica, now or later.
        longest_reconcile_seconds: since when the oldest reconcile goes on; 0 if none does.
        unreadable: objects that cannot be read, by kind.
        unavailable: the watched namespaces that cannot be listed or watched.
    """

    leading: bool = False
    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    workers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pending_seconds: Mapping[str, float] = field(default_factory=dict)
    stragglers: Mapping[str, int] = field(default_factory=dict)
    figures: Sequence[JobFigures] = ()
    agents: int = 0
    streams: int = 0
    queued: int = 0
    longest_reconcile_seconds: float = 0.0
    unreadable: Mapping[str, int] = field(default_factory=dict)
    unavailable: Collection[str] = ()
