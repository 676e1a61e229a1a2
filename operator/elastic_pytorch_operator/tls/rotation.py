"""Which authorities agents trust, and which of them signs. Pure.

A pod keeps the authorities that it gets at its creation. So a new authority is made long before the
old one ends, and signs only after every older pod has had a year to end.
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
    made_at: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Shown:
    certificate: str  # PEM, with those between it and an authority
    key: str = field(repr=False)  # PEM
    authorities: str  # PEM, for clients to trust
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
    """The authority that signs now: the newest that all pods know, or else the oldest."""
    known = [pair for pair in authorities if now >= pair.made_at + SIGNS_AFTER_DAYS * DAY]
    return known[-1] if known else authorities[0]


def wants_serving(trust: Trust, signer: Pair, hosts: Sequence[str], now: float) -> bool:
    if trust.serving is None or trust.signer != signer.certificate or trust.hosts != tuple(hosts):
        return True
    return not 0 <= now - trust.serving.made_at < RENEW_AFTER_DAYS * DAY
