"""Whose token is it? The API server's answer (TokenReview), remembered for a while so that heartbeats cost it nothing.

Forged tokens cost little, too: a wrong one is remembered apart from the right ones, which it cannot push out, and nobody may have
more than a few new ones looked at in a second.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import TypeVar

from elastic_pytorch_operator import names
from elastic_pytorch_operator.cluster import Cluster, ClusterError, PodIdentity
from elastic_pytorch_operator.metrics import Metrics
from elastic_pytorch_operator.rate_limit import RateLimit

VALID_SECONDS = 300.0
INVALID_SECONDS = 5.0
MOST_REMEMBERED = 20_000
REVIEWS_PER_SECOND = 5.0  # for an address
REVIEWS_AT_ONCE = 120.0  # all pods of a node, where they share its address, after a restart of the operator
REVIEWS_IN_FLIGHT = 64

Value = TypeVar("Value")


class TooManyTokensError(Exception):
    """An address has shown too many tokens that are not known.

    Attributes:
        retry_seconds: when it may show the next.
    """

    def __init__(self, retry_seconds: float) -> None:
        super().__init__("too many new tokens from this address")
        self.retry_seconds = retry_seconds


class TokenReviewer:
    """Tells which pod a token was issued to.

    While the API server is away, an identity that was established before is still honoured: training must be able to go on, and a
    pod's name and UID do not change.
    """

    def __init__(self, cluster: Cluster, metrics: Metrics | None = None, *, most_remembered: int = MOST_REMEMBERED) -> None:
        self._cluster = cluster
        self._metrics = metrics or Metrics()
        self._valid: OrderedDict[bytes, tuple[PodIdentity, float]] = OrderedDict()  # and until when it need not be asked for
        self._invalid: OrderedDict[bytes, float] = OrderedDict()  # until when
        self._asking: dict[bytes, asyncio.Task[PodIdentity | None]] = {}
        self._limit: RateLimit[str] = RateLimit(REVIEWS_PER_SECOND, REVIEWS_AT_ONCE)
        self._most_remembered = most_remembered
        self._gate = asyncio.Semaphore(REVIEWS_IN_FLIGHT)

    async def identify(self, token: str, address: str = "") -> PodIdentity | None:
        """The pod that a token was issued to; None if the token is not valid.

        Args:
            token: what was shown.
            address: of who shows it.

        Raises:
            ClusterError: the API server could not be asked, and the token is not known.
            TooManyTokensError: it is not asked, for the sake of the API server.
        """
        digest = hashlib.sha256(token.encode()).digest()
        now = time.monotonic()
        known = self._valid.get(digest)
        if known is not None and now < known[1]:
            return known[0]
        if now < self._invalid.get(digest, now):
            return None
        asking = self._asking.get(digest)
        if asking is None:
            wait = self._limit.admit(address, now) if known is None else 0.0
            if wait:
                raise TooManyTokensError(wait)
            asking = asyncio.ensure_future(self._review(token))
            self._asking[digest] = asking
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        try:
            identity = await asyncio.shield(asking)
        except ClusterError:
            if known is not None:
                return known[0]
            raise
        if identity is None:
            self._valid.pop(digest, None)
            self._remember(self._invalid, digest, now + INVALID_SECONDS)
        else:
            self._remember(self._valid, digest, (identity, now + VALID_SECONDS))
        return identity

    async def _review(self, token: str) -> PodIdentity | None:
        async with self._gate:
            try:
                identity = await self._cluster.review_token(token, names.TOKEN_AUDIENCE)
            except ClusterError:
                self._metrics.reviewed("error")
                raise
        self._metrics.reviewed("valid" if identity else "invalid")
        return identity

    def _remember(self, known: OrderedDict[bytes, Value], digest: bytes, value: Value) -> None:
        known[digest] = value
        known.move_to_end(digest)
        if len(known) > self._most_remembered:
            known.popitem(last=False)
