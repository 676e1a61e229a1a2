"""Decides which connections a server admits, and which it closes to make room. Pure.

A connection is unknown until a client authenticates on it. Unknown ones are limited for each
address and in all, with room for worker pods beyond that; a known client keeps its newest ones.

IPv6 addresses count whole: a /64 is mostly a node, whose pods must not pay for each other.
"""

import sys
from collections import Counter
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from typing import Literal

from elastic_pytorch_operator.http.rate_limit import RateLimit

MAX_PER_CLIENT = 8  # an agent has one, and perhaps more whose end is not noticed yet

Peer = tuple[str, int]  # address and port
Refusal = Literal["files", "rate", "address", "total"]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """All but `open` are limits of unknown connections. The defaults suit agents."""

    open: int = sys.maxsize  # the process needs the rest of its files
    per_second: float = 50.0  # that an address may open: each costs a millisecond, mostly for TLS
    # After a pause: where pods share their node's address, a hundred agents come after a takeover.
    at_once: float = 600.0
    per_address: int = 256
    total: int = 1024
    reserved: int = 1024  # beyond `total`, for expected addresses
    # A new one takes the place of the oldest, of its address or of all, instead of being refused.
    newest_first: bool = False
    # For which one may stay unknown: an agent authenticates at once, but for a token review.
    authentication_seconds: float = 10.0


@dataclass(slots=True)
class Connections:
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    is_expected: Callable[[str], bool] = lambda _: False  # whether worker pods have an address
    # When each unknown connection from an expected address was opened, the oldest first.
    waiting: MutableMapping[Hashable, float] = field(default_factory=dict)
    displace: Callable[[Peer], None] = lambda _: None
    _unknown: dict[Peer, None] = field(default_factory=dict)
    _unknown_of: Counter[str] = field(default_factory=Counter)
    _clients: dict[Peer, Hashable] = field(default_factory=dict)
    _known_of: dict[Hashable, dict[Peer, None]] = field(default_factory=dict)
    _rate: RateLimit[str] = field(init=False)

    def __post_init__(self) -> None:
        self._rate = RateLimit(self.limits.per_second, self.limits.at_once)

    def open(self, peer: Peer, now: float) -> Refusal | None:
        """Returns why a new connection is to be closed at once, or None."""
        address = peer[0]
        if len(self._unknown) + len(self._clients) >= self.limits.open:
            return "files"
        if self._rate.admit(address, now):
            return "rate"
        if self.limits.newest_first:
            self._make_room(address)
        if self._unknown_of[address] >= self.limits.per_address:
            return "address"
        room = self.limits.total - len(self._unknown)
        if room <= 0 and (room + self.limits.reserved <= 0 or not self.is_expected(address)):
            return "total"
        self._unknown[peer] = None
        self._unknown_of[address] += 1
        if self.is_expected(address):
            self.waiting[peer] = now
        return None

    def _make_room(self, address: str) -> None:
        if self._unknown_of[address] >= self.limits.per_address:
            oldest = next(peer for peer in self._unknown if peer[0] == address)
        elif len(self._unknown) >= self.limits.total:
            oldest = next(iter(self._unknown))
        else:
            return
        self.close(oldest)
        self.displace(oldest)

    def client_of(self, peer: Peer) -> Hashable | None:
        return self._clients.get(peer)

    def authenticate(self, peer: Peer, client: Hashable) -> Peer | None:
        """Returns the client's oldest connection if it has too many."""
        if self._clients.get(peer) == client or (
            peer not in self._unknown and peer not in self._clients
        ):
            return None
        self.close(peer)
        self._clients[peer] = client
        known = self._known_of.setdefault(client, {})
        known[peer] = None
        if len(known) <= MAX_PER_CLIENT:
            return None
        oldest = next(iter(known))
        self.close(oldest)
        return oldest

    def close(self, peer: Peer) -> None:
        self.waiting.pop(peer, None)
        if peer in self._unknown:
            del self._unknown[peer]
            self._unknown_of[peer[0]] -= 1
            if not self._unknown_of[peer[0]]:
                del self._unknown_of[peer[0]]
        client = self._clients.pop(peer, None)
        if client is not None:
            del self._known_of[client][peer]
            if not self._known_of[client]:
                del self._known_of[client]
