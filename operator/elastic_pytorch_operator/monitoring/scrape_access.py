"""Admits scrapes of users whose token is the API server's, and whose roles allow `get` of /metrics.

Decisions that allow are kept apart, so that invented tokens cannot push them out, and hold for
longer while the API server cannot be asked, which is when metrics matter most.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable
from enum import Enum, auto

from aiohttp import web
from aiohttp.typedefs import Handler

from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.http.rate_limit import Newest, RateLimit
from elastic_pytorch_operator.http.server import peer_of

logger = logging.getLogger(__name__)

PATH = "/metrics"
CHALLENGE = {"WWW-Authenticate": "Bearer"}
ALLOWED_SECONDS = 60.0  # from one review of a token to the next
STALE_SECONDS = 600.0  # while the API server gives no answer
ANSWER_SECONDS = 2.0  # for which a scrape with an older decision waits for a new one
REFUSED_SECONDS = 10.0
MAX_REMEMBERED = 1000
MAX_REVIEWS = 4  # at once
REVIEWS_PER_SECOND = 1.0  # of unknown tokens, for an address
REVIEWS_AT_ONCE = 10.0


class Access(Enum):
    ALLOWED = auto()
    UNKNOWN = auto()
    FORBIDDEN = auto()


class ScrapeAccess:
    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
        max_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._allowed: Newest[bytes, float] = Newest(max_remembered)  # since when
        self._refused: Newest[bytes, tuple[Access, float]] = Newest(max_remembered)  # until when
        self._reviews: dict[bytes, asyncio.Task[Access]] = {}
        self._limit: RateLimit[str] = RateLimit(REVIEWS_PER_SECOND, REVIEWS_AT_ONCE)
        self._slots = asyncio.Semaphore(MAX_REVIEWS)

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers 401 without a valid token, and 403 without the right."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token or not token.isascii():
            raise web.HTTPUnauthorized(text="a bearer token is needed", headers=CHALLENGE)
        try:
            access = await self.decide(token, peer_of(request)[0])
        except ClusterError as error:
            logger.warning("cannot review the token of a scrape: %s", error)
            raise web.HTTPServiceUnavailable(text="tokens cannot be reviewed now") from error
        match access:
            case Access.ALLOWED:
                return await handler(request)
            case Access.UNKNOWN:
                raise web.HTTPUnauthorized(text="the token is not valid", headers=CHALLENGE)
            case Access.FORBIDDEN:
                text = f"the token's user may not get the nonResourceURL {PATH}: bind a role to it"
                raise web.HTTPForbidden(text=text)
            case seconds:
                retry = {"Retry-After": str(math.ceil(seconds))}
                text = "too many new tokens from this address"
                raise web.HTTPTooManyRequests(text=text, headers=retry)

    async def decide(self, token: str, address: str = "") -> Access | float:
        """The decision on a token, or the seconds until its address may show an unknown one."""
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        age = now - self._allowed.get(digest, -math.inf)
        if age < ALLOWED_SECONDS:
            return Access.ALLOWED
        access, until = self._refused.get(digest, (Access.UNKNOWN, -math.inf))
        if now < until:
            return access
        may_be_stale = age < STALE_SECONDS
        if digest not in self._reviews:
            if not may_be_stale and (wait := self._limit.admit(address, now)):
                return wait
            self._begin_review(token, digest)
        review = self._reviews[digest]
        if may_be_stale:
            await asyncio.wait({review}, timeout=ANSWER_SECONDS)
            if not review.done() or review.exception():
                return Access.ALLOWED
        return await asyncio.shield(review)

    def _begin_review(self, token: str, digest: bytes) -> None:
        def end(review: asyncio.Task[Access]) -> None:
            del self._reviews[digest]
            if review.cancelled() or review.exception():
                return
            if (access := review.result()) is Access.ALLOWED:
                self._allowed[digest] = self._clock()
            else:
                self._allowed.pop(digest, None)
                self._refused[digest] = (access, self._clock() + REFUSED_SECONDS)

        review = asyncio.create_task(self._review(token))
        self._reviews[digest] = review
        review.add_done_callback(end)

    async def _review(self, token: str) -> Access:
        async with self._slots:
            user = await self._cluster.review_user(token)
            if user is None:
                return Access.UNKNOWN
            allowed = await self._cluster.review_read(user, PATH)
            return Access.ALLOWED if allowed else Access.FORBIDDEN
