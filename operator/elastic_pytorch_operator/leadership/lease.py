"""Which replica leads, by client-go's rules. Pure: a Lease and monotonic times are arguments.

No replica's time of day counts: one on standby measures how long it has seen no change of the
lease, and the leader the time since it sent its last successful renewal. The leader stops after
`renew_deadline_seconds`, and the others wait for `lease_seconds`, so no two of them lead.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest

RELEASED_SECONDS = 1  # the API does not allow 0
UNNAMED_SECONDS = 15.0  # the duration of a lease that names none
# An edited Lease could keep all replicas from leading for years.
MAX_LEASE_SECONDS = 300
MAX_TRANSITIONS = 2**31 - 1  # an int32 in the API


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Kubernetes' LeaderElectionConfiguration, in seconds."""

    lease_seconds: int = 4  # without a renewal; the API demands whole seconds
    renew_deadline_seconds: float = 3.0  # a leader stops that has not renewed the lease for so long
    retry_period_seconds: float = 1.0

    def __post_init__(self) -> None:
        lease, deadline = self.lease_seconds, self.renew_deadline_seconds
        retry = self.retry_period_seconds
        if not 0 < 2 * retry <= deadline < lease:
            raise ValueError(
                f"the lease's duration ({lease:g} s) must be longer than the renew deadline "
                f"({deadline:g} s), and that at least twice the retry period ({retry:g} s)"
            )
        if lease > MAX_LEASE_SECONDS:
            raise ValueError(
                f"the lease's duration ({lease:g} s) must be at most {MAX_LEASE_SECONDS} s"
            )

    @property
    def look_seconds(self) -> float:
        return self.retry_period_seconds / 2

    @property
    def pause_seconds(self) -> float:
        return self.retry_period_seconds / 4

    @property
    def request_seconds(self) -> float:
        """How long before a second request begins: both fit between a renewal and the deadline."""
        return (self.renew_deadline_seconds - self.retry_period_seconds - self.pause_seconds) / 2


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str  # empty: no replica
    seconds: float  # how long it lasts after a renewal
    renewed: str  # the holder's time of day, which is compared only with itself
    acquired: str
    transitions: int


UNHELD = Lease("", UNNAMED_SECONDS, "", "", 0)


@dataclass(frozen=True, slots=True)
class Candidacy:
    identity: str
    seen: Lease = UNHELD
    changed_at: float = 0.0  # when it was first seen so, by this replica's clock
    # When the replica sent its last renewal that succeeded; None: it does not lead.
    renewed_at: float | None = None
    timing: LeaseTiming = field(default_factory=LeaseTiming)


def read_lease(manifest: Manifest) -> Lease:
    """Anyone may have written it; without readable fields no replica holds it."""
    found = manifest.get("spec")
    spec = found if isinstance(found, Mapping) else {}
    holder, renewed, acquired = (
        text if isinstance(text := spec.get(name), str) else ""
        for name in ("holderIdentity", "renewTime", "acquireTime")
    )
    seconds, transitions = (
        number if isinstance(number := spec.get(name), int | float) and number > 0 else 0
        for name in ("leaseDurationSeconds", "leaseTransitions")
    )
    return Lease(
        holder,
        float(min(seconds, MAX_LEASE_SECONDS)) or UNNAMED_SECONDS,
        renewed,
        acquired,
        int(min(transitions, MAX_TRANSITIONS)),
    )


def see(candidacy: Candidacy, lease: Lease, now: float) -> Candidacy:
    return replace(
        candidacy,
        seen=lease,
        changed_at=candidacy.changed_at if lease == candidacy.seen else now,
        renewed_at=candidacy.renewed_at if lease.holder == candidacy.identity else None,
    )


def leads_until(candidacy: Candidacy) -> float:
    if candidacy.renewed_at is None:
        return -math.inf
    return candidacy.renewed_at + candidacy.timing.renew_deadline_seconds


def acquirable_at(candidacy: Candidacy) -> float:
    lease = candidacy.seen
    if lease.holder in ("", candidacy.identity):
        return -math.inf
    return candidacy.changed_at + lease.seconds


def acquire(candidacy: Candidacy, time: str) -> dict[str, Any]:
    """The spec to write; `time` has microseconds, so that other replicas see a change."""
    lease = candidacy.seen
    mine = lease.holder == candidacy.identity
    return {
        "holderIdentity": candidacy.identity,
        "leaseDurationSeconds": candidacy.timing.lease_seconds,
        "acquireTime": (lease.acquired if mine else "") or time,
        "renewTime": time,
        "leaseTransitions": min(lease.transitions + (not mine), MAX_TRANSITIONS),
    }


def acquired(candidacy: Candidacy, lease: Lease, sent_at: float, now: float) -> Candidacy:
    """The candidacy after an accepted write; others may measure from when it was sent."""
    return replace(see(candidacy, lease, now), renewed_at=sent_at)


def release(lease: Lease, time: str) -> dict[str, Any]:
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": RELEASED_SECONDS,
        "acquireTime": time,
        "renewTime": time,
        "leaseTransitions": lease.transitions,
    }
