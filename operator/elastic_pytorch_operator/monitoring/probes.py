"""Answers kubelets and Prometheus: /healthz, /readyz and /metrics, and judges the liveness."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from elastic_pytorch_operator.http.connections import ConnectionLimits

logger = logging.getLogger(__name__)

WATCH_STALE_SECONDS = 90.0  # kopf opens a watch again after 70 s without even a bookmark
STUCK_SECONDS = 300.0  # a reconcile whose every request times out is shorter
FRESH_SECONDS = 5.0
PIECE_BYTES = 64 * 1024
# Pods of the node's network share the kubelet's address.
PROBE_LIMITS = ConnectionLimits(
    per_second=10.0, at_once=50.0, per_address=16, reserved=0, newest_first=True
)


def failed_checks(
    now: float,
    silent_since: Mapping[str, float],
    answering_since: float | None,
    longest_reconcile_seconds: float = 0.0,
) -> tuple[str, ...]:
    """What the liveness probe reports; `silent_since`: by kind, since when a watch misses changes.

    A silent watch counts only while the API server answers, because no restart of the operator
    makes that answer.
    """
    found = []
    if answering_since is not None:
        for kind, since in sorted(silent_since.items()):
            seconds = now - max(since, answering_since)
            if seconds > WATCH_STALE_SECONDS:
                found.append(
                    f"the watch of {kind} has been silent about a change for {seconds:.0f} s"
                )
    if longest_reconcile_seconds > STUCK_SECONDS:
        found.append(f"a reconcile has been going on for {longest_reconcile_seconds:.0f} s")
    return tuple(found)


class Scrapes:
    """The text that Prometheus reads: made in a thread, at most once in FRESH_SECONDS.

    A thousand namespaces take the better part of a second. `begin` takes the values, and returns
    what renders them.
    """

    def __init__(
        self, begin: Callable[[], Callable[[], bytes]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._begin = begin
        self._clock = clock
        self._begun_at = -math.inf
        self._making: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """All that ask while the text is made get the same one, or the same error."""
        if self._making is None or (
            self._making.done() and self._clock() >= self._begun_at + FRESH_SECONDS
        ):
            self._begun_at = self._clock()
            self._making = asyncio.create_task(asyncio.to_thread(self._begin()))
        return await asyncio.shield(self._making)


class Probes:
    """A replica on standby that knows the cluster is ready, too."""

    def __init__(
        self,
        failed_checks: Callable[[], Sequence[str]],
        ready: Callable[[], bool],
        metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        self._failed_checks = failed_checks
        self._is_ready = ready
        self._text = metrics

    def routes(self) -> list[web.RouteDef]:
        return [*self.probe_routes(), *self.metrics_routes()]

    def probe_routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self._healthy), web.get("/readyz", self._ready)]

    def metrics_routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._metrics)]

    async def _healthy(self, _: web.Request) -> web.Response:
        if found := self._failed_checks():
            # The log is all that is left of a container that is restarted.
            logger.error("a liveness check fails: %s", "; ".join(found))
            return web.Response(status=503, text="\n".join(found))
        return web.Response(text="ok")

    async def _ready(self, _: web.Request) -> web.Response:
        if not self._is_ready():
            return web.Response(status=503, text="jobs, pods and nodes have not been listed yet")
        return web.Response(text="ok")

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        text = memoryview(await self._text())
        answer = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
        answer.content_length = len(text)
        await answer.prepare(request)
        # In pieces, so that no slow client has a copy of the rest.
        for begin in range(0, len(text), PIECE_BYTES):
            await answer.write(text[begin : begin + PIECE_BYTES])
        return answer
