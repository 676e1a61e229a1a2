"""What the gauges show at one scrape."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobFigures:
    namespace: str
    name: str
    wanted: int
    ready: int
    world_size: int
    step: int | None
    step_seconds: float | None
    impaired: str = ""  # why it is Pending or Degraded; empty: it is neither
    impaired_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GaugeValues:
    leading: bool = False  # else nothing of jobs is exported: a sum over replicas has it once
    # By namespace and state; its keys are the namespaces that have jobs.
    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # Of jobs that have not ended, by namespace and state.
    workers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # For how long each Pending job has been so, in seconds, by namespace and reason.
    waiting: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    stragglers: Mapping[str, int] = field(default_factory=dict)  # by namespace
    figures: Sequence[JobFigures] = ()  # exported on request only
    agents: int = 0
    streams: int = 0
    queued: int = 0
    longest_reconcile_seconds: float = 0.0  # the age of the oldest one that goes on
    unreadable: Mapping[str, int] = field(default_factory=dict)  # by kind
    unavailable: Collection[str] = ()
    ready: bool = False
    certificate_ends_at: float | None = None  # seconds since the epoch
    memory_limit_bytes: float = math.inf  # of the container; infinity: none
