"""What the gauges show at one scrape."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.job import JobKey


@dataclass(frozen=True, slots=True)
class GaugeValues:
    leading: bool = False
    # With their manifests; only the leader has any: a sum over replicas has each job once.
    jobs: Sequence[tuple[JobKey, Manifest]] = ()
    time: str = ""  # RFC 3339
    agents: int = 0
    streams: int = 0
    queued: int = 0
    longest_reconcile_seconds: float = 0.0  # the age of the oldest one that goes on
    unreadable: Mapping[str, int] = field(default_factory=dict)  # by kind
    unavailable: Collection[str] = ()
    ready: bool = False
    certificate_ends_at: float | None = None  # seconds since the epoch
    memory_limit_bytes: float = math.inf  # of the container; infinity: none
