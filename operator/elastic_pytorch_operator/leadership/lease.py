"""Which replica leads, by client-go's rules. Pure: a Lease and monotonic times are arguments.

No replica's time of day counts. One on standby measures how long the lease has not changed, by its
own clock from when it saw the last change. The one that leads measures from before it asked for the
renewal. So the leader always thinks its time is up before another can lead: it stops
`renew_deadline_seconds` after its last renewal was sent, the others wait for `lease_seconds`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest

RELEASED_SECONDS = 1  # the API does not allow 0
UNNAMED_SECONDS = 15.0  # the duration of a lease that names none
# The longest that a replica may ask for. A Lease that names more has been edited: it would keep all
# replicas from leading for years.
MAX_LEASE_SECONDS = 300
MAX_TRANSITIONS = 2**31 - 1  # an int32 in the API


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How soon a leader is replaced, in seconds.

    The three are those of Kubernetes' LeaderElectionConfiguration.

    Raises:
        ValueError: two tries to renew do not fit before the deadline, the deadline is not before
            the lease's end, or the lease is too long.
    """

    # How long a lease lasts without a renewal: whole seconds, as the API demands.
    lease_seconds: int = 4
    renew_deadline_seconds: float = 3.0  # a leader stops that has not renewed the lease for so long
    retry_period_seconds: float = 1.0

    def __post_init__(self) -> None:
        if (
            not 0
            < 2 * self.retry_period_seconds
            <= self.renew_deadline_seconds
            < self.lease_seconds
        ):
            raise ValueError(
                f"the lease's duration ({self.lease_seconds:g} s) must be longer than the renew deadline "
                f"({self.renew_deadline_seconds:g} s), and that at least twice the retry period ({self.retry_period_seconds:g} s)"
            )
        if self.lease_seconds > MAX_LEASE_SECONDS:
            raise ValueError(
                f"the lease's duration ({self.lease_seconds:g} s) must be at most {MAX_LEASE_SECONDS} s"
            )

    @property
    def look_seconds(self) -> float:
        return self.retry_period_seconds / 2

    @property
    def pause_seconds(self) -> float:
        return self.retry_period_seconds / 4

    @property
    def request_seconds(self) -> float:
        """How long an answer is waited for before another request is sent beside it: both fit between a renewal and the deadline."""
        return (self.renew_deadline_seconds - self.retry_period_seconds - self.pause_seconds) / 2


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str  # empty: no replica
    seconds: float  # how long it lasts after a renewal
    renewed: str  # the holder's time of day at the last renewal, which is compared to itself only
    acquired: str
    transitions: int  # how often it has changed hands


@dataclass(frozen=True, slots=True)
class Candidacy:
    identity: str  # its own, another one for each process
    seen: Lease | None = None  # None: not looked at yet
    changed_at: float = 0.0  # when it was first seen so, on this replica's clock
    # When the last renewal of its own that succeeded was sent; None: it does not lead.
    renewed_at: float | None = None
    timing: LeaseTiming = field(default_factory=LeaseTiming)


def read_lease(manifest: Manifest) -> Lease:
    """Reads a Lease object, which anyone may have written; what is missing or unreadable in it counts as held by no replica."""
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


def leads(candidacy: Candidacy, now: float) -> bool:
    return now < leads_until(candidacy)


def leads_until(candidacy: Candidacy) -> float:
    return (
        -math.inf
        if candidacy.renewed_at is None
        else candidacy.renewed_at + candidacy.timing.renew_deadline_seconds
    )


def may_acquire(candidacy: Candidacy, now: float) -> bool:
    return now >= acquirable_at(candidacy)


def acquirable_at(candidacy: Candidacy) -> float:
    lease = candidacy.seen
    if lease is None or not lease.holder or lease.holder == candidacy.identity:
        return -math.inf
    return candidacy.changed_at + lease.seconds


def acquire(candidacy: Candidacy, time: str) -> dict[str, Any]:
    """The spec to write into the lease.

    Args:
        time: the time of day with microseconds, for people and for others to see a change.
    """
    lease = candidacy.seen
    mine = lease is not None and lease.holder == candidacy.identity
    return {
        "holderIdentity": candidacy.identity,
        "leaseDurationSeconds": candidacy.timing.lease_seconds,
        "acquireTime": (lease.acquired if lease is not None and mine else "") or time,
        "renewTime": time,
        "leaseTransitions": 0
        if lease is None
        else min(lease.transitions + (not mine), MAX_TRANSITIONS),
    }


def acquired(candidacy: Candidacy, lease: Lease, sent_at: float, now: float) -> Candidacy:
    """What a replica knows once the API server has accepted what it wrote.

    Args:
        sent_at: when the write was sent: other replicas may measure from then on.
    """
    return replace(see(candidacy, lease, now), renewed_at=sent_at)


def release(lease: Lease, time: str) -> dict[str, Any]:
    """The spec that gives a lease back, so that no replica has to wait for its end."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": RELEASED_SECONDS,
        "acquireTime": time,
        "renewTime": time,
        "leaseTransitions": lease.transitions,
    }
