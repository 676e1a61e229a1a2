"""Identifies the pod of a token by its signature, or else by a TokenReview of the API server.

A cached token stays in use during its next review: a pod's name and UID do not change, and the API
server may be away. Invalid tokens cannot push valid ones out of the cache, and the reviews of new
ones are limited for each address.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic_pytorch_operator.agents.load import LEAST_SECONDS
from elastic_pytorch_operator.agents.token_signature import TokenSignatures
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError, PodIdentity
from elastic_pytorch_operator.http.rate_limit import Newest, RateLimit
from elastic_pytorch_operator.monitoring.metrics import Metrics

# At most, and at least half of it; or REVIEW_HEARTBEATS, which thousands of agents send less often.
REVIEW_SECONDS = 300.0
REVIEW_HEARTBEATS = 100
RETRY_SECONDS = 60.0  # after an error
INVALID_SECONDS = 5.0
MAX_REMEMBERED = 20_000
REVIEWS_PER_SECOND = 5.0  # for an address
# All pods of a node may share its address, and come after a restart of the operator.
REVIEWS_AT_ONCE = 120.0
# In flight: more would not be faster, but slow down other requests.
MAX_FIRST_REVIEWS = 16
MAX_LATER_REVIEWS = 4  # apart, so that new agents do not wait for them


class TooManyTokensError(Exception):
    def __init__(self, retry_seconds: float) -> None:
        super().__init__("too many new tokens from this address")
        self.retry_seconds = retry_seconds


@dataclass(slots=True)
class _Known:
    identity: PodIdentity
    review_at: float


class TokenReviewer:
    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics | None = None,
        *,
        heartbeat_seconds: Callable[[float], float] = lambda _: LEAST_SECONDS,
        max_remembered: int = MAX_REMEMBERED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics or Metrics()
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._valid: Newest[bytes, _Known] = Newest(max_remembered)
        self._invalid: Newest[bytes, float] = Newest(max_remembered)  # until when
        self._reviews: dict[bytes, asyncio.Task[PodIdentity | None]] = {}
        self._signatures = TokenSignatures(cluster, clock=clock)
        self._limit: RateLimit[str] = RateLimit(REVIEWS_PER_SECOND, REVIEWS_AT_ONCE)
        self._first = asyncio.Semaphore(MAX_FIRST_REVIEWS)
        self._later = asyncio.Semaphore(MAX_LATER_REVIEWS)

    async def identify(
        self, token: str, address: str = "", client: PodIdentity | None = None
    ) -> PodIdentity | None:
        """The pod that a token was issued to, None if it is not valid, or TooManyTokensError.

        A known client of the connection does not wait for the review of a renewed token.
        """
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        known = self._valid.get(digest)
        if known is not None:
            if now >= known.review_at and digest not in self._reviews:
                self._begin_review(token, digest, self._later)
            return known.identity
        if now < self._invalid.get(digest, now):
            return None
        if digest not in self._reviews:
            if wait := self._limit.admit(address, now):
                raise TooManyTokensError(wait)
            self._begin_review(token, digest, self._later if client else self._first)
        if client is not None:
            return client
        return await asyncio.shield(self._reviews[digest])

    def _begin_review(self, token: str, digest: bytes, gate: asyncio.Semaphore) -> None:
        """Starts a task whose result is kept even if nothing waits for it."""

        def end(review: asyncio.Task[PodIdentity | None]) -> None:
            del self._reviews[digest]
            if not review.cancelled():
                review.exception()  # only for the tasks that wait for it, if any

        review = asyncio.create_task(self._review(token, digest, gate))
        self._reviews[digest] = review
        review.add_done_callback(end)

    async def _review(
        self, token: str, digest: bytes, gate: asyncio.Semaphore
    ) -> PodIdentity | None:
        # A signature does not overrule what the API server has answered.
        reviewed = digest in self._valid or digest in self._invalid
        if not reviewed and (identity := await self._signatures.identify(token)):
            self._metrics.reviewed("signature")
            self._accept(digest, identity)
            return identity
        try:
            async with gate:
                identity = await self._cluster.review_token(token, names.TOKEN_AUDIENCE)
        except ClusterError:
            self._metrics.reviewed("error")
            if known := self._valid.get(digest):
                known.review_at = self._clock() + _spread(digest) * RETRY_SECONDS
            raise
        self._metrics.reviewed("valid" if identity else "invalid")
        if identity is None:
            self._valid.pop(digest, None)
            self._invalid[digest] = self._clock() + INVALID_SECONDS
        else:
            self._accept(digest, identity)
        return identity

    def _accept(self, digest: bytes, identity: PodIdentity) -> None:
        now = self._clock()
        seconds = max(REVIEW_SECONDS, REVIEW_HEARTBEATS * self._heartbeat_seconds(now))
        self._valid[digest] = _Known(identity, now + _spread(digest) * seconds)


def _spread(digest: bytes) -> float:
    """From 0.5 to 1: tokens reviewed together are not due together again."""
    return 0.5 + digest[0] / 512
