"""Which authorities agents trust, and which of them signs.

Pure: it takes what there is and the time, and returns what to make.

The operator is its own certificate authority. Pods are given the authorities that there are when
they are made, and keep them for as long as they run. So a new authority is made long before the old
one ends, and signs nothing before every pod that does not know it has had a year to end. The
operator's own certificate is short-lived, and renewed without a restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

DAY = 86400.0
AUTHORITY_DAYS = 3650
NEXT_AUTHORITY_AFTER_DAYS = 1825
SIGNS_AFTER_DAYS = 365
SERVING_DAYS = 90
RENEW_AFTER_DAYS = 60


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: str  # PEM
    key: str = field(repr=False)  # PEM
    made_at: float  # the operator's time of day, seconds since the epoch


@dataclass(frozen=True, slots=True)
class Shown:
    """What the operator shows to its clients."""

    certificate: str  # PEM, with those between it and an authority
    key: str = field(repr=False)  # PEM
    authorities: str  # which clients are to trust, PEM
    ends_at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Trust:
    authorities: tuple[Pair, ...] = ()  # the oldest first
    serving: Pair | None = None
    signer: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def bundle(self) -> str:
        return "".join(pair.certificate for pair in self.authorities)

    @property
    def shown(self) -> Shown | None:
        """What clients get; None: there is no certificate yet."""
        if self.serving is None:
            return None
        return Shown(
            self.serving.certificate,
            self.serving.key,
            self.bundle,
            self.serving.made_at + SERVING_DAYS * DAY,
        )


def unexpired(authorities: Sequence[Pair], now: float) -> tuple[Pair, ...]:
    return tuple(pair for pair in authorities if now < pair.made_at + AUTHORITY_DAYS * DAY)


def wants_authority(authorities: Sequence[Pair], now: float) -> bool:
    return not authorities or now >= authorities[-1].made_at + NEXT_AUTHORITY_AFTER_DAYS * DAY


def signing(authorities: Sequence[Pair], now: float) -> Pair:
    """The authority that signs now: the newest that pods have had the time to learn of, or else the oldest."""
    known = [pair for pair in authorities if now >= pair.made_at + SIGNS_AFTER_DAYS * DAY]
    return known[-1] if known else authorities[0]


def wants_serving(trust: Trust, signer: Pair, hosts: Sequence[str], now: float) -> bool:
    if trust.serving is None or trust.signer != signer.certificate or trust.hosts != tuple(hosts):
        return True
    return not 0 <= now - trust.serving.made_at < RENEW_AFTER_DAYS * DAY
