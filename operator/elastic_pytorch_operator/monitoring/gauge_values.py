"""What the gauges show at one scrape."""

import math
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
        impaired: why it is Pending or Degraded; empty if it is neither.
        impaired_seconds: for how long.
    """

    namespace: str
    name: str
    wanted: int
    ready: int
    world_size: int
    step: int | None
    step_seconds: float | None
    impaired: str = ""
    impaired_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GaugeValues:
    """The values of the gauges at one scrape.

    Attributes:
        leading: whether this replica leads. Only then the rest is exported, so that a sum over replicas counts nothing twice.
        jobs: by namespace and state. The namespaces that have jobs are its keys.
        workers: of jobs that have not ended, by namespace and state.
        waiting: for how long each Pending job has been so, in seconds, by namespace and reason.
        stragglers: ranks that are slow, by namespace.
        figures: of each job: they are exported on request only.
        agents: that have sent a heartbeat of late.
        streams: of agents, that are open.
        queued: jobs that await a reconcile by this replica, now or later.
        longest_reconcile_seconds: since when the oldest reconcile goes on; 0 if none does.
        unreadable: objects that cannot be read, by kind.
        unavailable: the watched namespaces that cannot be listed or watched.
        ready: whether this replica is.
        certificate_ends_at: when the certificate ends that agents are shown, seconds since the epoch; None: there is none.
        memory_limit_bytes: of the container; infinity if it has none.
    """

    leading: bool = False
    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    workers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    waiting: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    stragglers: Mapping[str, int] = field(default_factory=dict)
    figures: Sequence[JobFigures] = ()
    agents: int = 0
    streams: int = 0
    queued: int = 0
    longest_reconcile_seconds: float = 0.0
    unreadable: Mapping[str, int] = field(default_factory=dict)
    unavailable: Collection[str] = ()
    ready: bool = False
    certificate_ends_at: float | None = None
    memory_limit_bytes: float = math.inf
