"""The HTTP API for agents. docs/internals/protocol.md is its contract."""

import asyncio
import json
import logging
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any
from weakref import WeakValueDictionary

from aiohttp import web
from aiohttp.typedefs import Handler

from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat, parse_heartbeat
from elastic_pytorch_operator.agents.load import delay_of_change
from elastic_pytorch_operator.agents.registry import AgentRegistry, JobAgents
from elastic_pytorch_operator.agents.stream_lines import HeldBytes, StreamLines
from elastic_pytorch_operator.agents.token_review import TokenReviewer, TooManyTokensError
from elastic_pytorch_operator.cluster.interface import ClusterError, PodIdentity
from elastic_pytorch_operator.http.connections import ConnectionLimits, Connections
from elastic_pytorch_operator.http.rate_limit import RateLimit
from elastic_pytorch_operator.http.server import (
    OWN_FILES,
    authenticate,
    client_of,
    most_connections,
    peer_of,
    serving,
)
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import LEAVE_SECONDS, leave_seconds
from elastic_pytorch_operator.spec.job import Job, JobKey

logger = logging.getLogger(__name__)

# Of one pod. An agent has one stream, and perhaps another whose end is not noticed yet.
LINES_PER_SECOND = 20.0
BURST_SECONDS = 3.0  # of such lines may come at once
MAX_STREAMS = 4
FULL_SECONDS = 60.0  # between two warnings that the process may open no more files
LINES = {"Content-Type": "application/x-ndjson; charset=utf-8"}
PATH = "/v1/agent"

Speaker = tuple[JobKey, str, str]  # job, its UID, worker


class AgentApi:
    """Refuses agents unless this replica leads: they look for the leader."""

    def __init__(
        self,
        cache: Cache,
        registry: AgentRegistry,
        reviewer: TokenReviewer,
        request_work: Callable[[JobKey, float], None],  # after a delay in seconds
        leading: Callable[[], bool] = lambda: True,
        metrics: Metrics | None = None,
        lines_per_second: float = LINES_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._cache = cache
        self._registry = registry
        self._reviewer = reviewer
        self._request_work = request_work
        self._leading = leading
        self.metrics = metrics or Metrics()
        self._limit: RateLimit[Speaker] = RateLimit(
            lines_per_second, BURST_SECONDS * lines_per_second
        )
        self._held: WeakValueDictionary[str, HeldBytes] = WeakValueDictionary()  # by namespace
        self._warned_full_at = -math.inf
        self.hearing = registry.hearing
        self.is_workers = cache.has_pod_at

    def note_refusal(self, reason: str, address: str) -> None:
        self.metrics.refused_connection(reason)
        self._note_turned_away(address)
        if reason == "files" and (now := self._clock()) >= self._warned_full_at + FULL_SECONDS:
            self._warned_full_at = now
            logger.warning(
                "%d connections are open, and no more agents are let in: the process may open %d "
                "files. Raise the container runtime's limit of open files",
                most_connections(),
                most_connections() + OWN_FILES,
            )

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        kind = "stream" if request.path == PATH else "other"
        try:
            answer = await handler(request)
        except web.HTTPException as refusal:
            self.metrics.answered(kind, refusal.status)
            logger.debug(
                "refused",
                extra={
                    "address": peer_of(request)[0],
                    "status": refusal.status,
                    "why": refusal.text,
                },
            )
            raise
        self.metrics.answered(kind, answer.status)
        return answer

    async def stream(self, request: web.Request) -> web.StreamResponse:
        token = _token_of(request)
        speaker = await self._identify(request, token)
        if wait := self._limit.admit(speaker, self._clock()):
            raise _too_many(speaker, wait)
        reply = web.StreamResponse(headers=LINES)
        news: asyncio.Task[None] | None = None
        held = self._held.setdefault(speaker[0].namespace, HeldBytes())
        lines = StreamLines(
            request.content, lambda price: self._limit.admit(speaker, self._clock(), price), held
        )
        with self.listening_to(speaker):
            try:
                await reply.prepare(request)
                while line := await lines.next():
                    if lines.refused_seconds:
                        await reply.write(self._refuse(_too_many(speaker, lines.refused_seconds)))
                        continue
                    fields = _parse(line)
                    if isinstance(fields, dict) and "token" in fields:
                        token = fields["token"]  # the kubelet has renewed it
                        if not isinstance(token, str):
                            raise MalformedHeartbeat("token: must be a string")
                        continue
                    await reply.write(await self._answer_line(request, token, fields))
                    # A new leader hears thousands of agents sooner if their rounds come later.
                    if news is None:
                        news = asyncio.create_task(self._send_news(reply, speaker))
            except (web.HTTPException, MalformedHeartbeat) as error:
                reply.force_close()
                if isinstance(error, MalformedHeartbeat):
                    error = _failure(web.HTTPBadRequest, str(error))
                await reply.write(self._refuse(error))
            finally:
                if news is not None:
                    news.cancel()
        return reply

    async def _answer_line(self, request: web.Request, token: str, fields: object) -> bytes:
        """The answer to a heartbeat; web.HTTPException and MalformedHeartbeat end the stream."""
        try:
            answer = self.take(await self._identify(request, token), fields)
        except web.HTTPTooManyRequests as refusal:
            return self._refuse(refusal)
        self.metrics.answered("heartbeat", HTTPStatus.OK)
        return _line("heartbeat", json.dumps(answer).encode())

    def _refuse(self, refusal: web.HTTPException) -> bytes:
        self.metrics.answered("heartbeat", refusal.status)
        fields = {"status": refusal.status, **json.loads(refusal.text or "{}")}
        if (seconds := refusal.headers.get("Retry-After")) is not None:
            fields["retrySeconds"] = int(seconds)
        return _line("refused", json.dumps(fields).encode())

    async def _send_news(self, reply: web.StreamResponse, speaker: Speaker) -> None:
        with suppress(ConnectionError):  # the stream ends with it
            async for news in self.news(speaker):
                self.metrics.answered("round", HTTPStatus.OK)
                await reply.write(_line("round", news))

    async def news(self, speaker: Speaker) -> AsyncIterator[bytes]:
        """The round of a worker's job as JSON, at once and after each change."""
        _, job_uid, worker = speaker
        job = self._registry.job(job_uid)
        while True:
            sent = _news_of(job)
            yield _describe_round(job, worker)
            while _news_of(job) == sent:
                await job.news.wait()

    def take(self, speaker: Speaker, fields: object) -> Mapping[str, Any]:
        key, job_uid, worker = speaker
        beat = parse_heartbeat(worker, fields, self._clock())
        delay_seconds = self._registry.note_heartbeat(job_uid, beat)
        if delay_seconds is not None:
            self._request_work(key, delay_seconds)
        spec = self._cache.job(key)
        return {
            "heartbeatSeconds": self._registry.heartbeat_seconds(self._clock()),
            "leaveSeconds": leave_seconds(spec) if isinstance(spec, Job) else LEAVE_SECONDS,
            "peerStopped": self._registry.peer_stopped(job_uid, beat.round),
        }

    @contextmanager
    def listening_to(self, speaker: Speaker) -> Iterator[None]:
        """Counts an agent's stream; an exception means that it was dropped."""
        key, job_uid, worker = speaker
        job = self._registry.job(job_uid)
        if job.streams.get(worker, 0) >= MAX_STREAMS:
            raise _failure(
                web.HTTPTooManyRequests, f"{MAX_STREAMS} streams of pod {worker} are open", 1.0
            )
        self._registry.open_stream(job_uid, worker)
        dropped = True
        try:
            yield
            dropped = False
        finally:
            self._registry.close_stream(job_uid, worker, self._clock(), dropped=dropped)
            if dropped:
                self._request_work(key, delay_of_change(len(job.agents)))

    async def _identify(self, request: web.Request, token: str) -> Speaker:
        address = peer_of(request)[0]
        if not token or not token.isascii():
            raise _failure(web.HTTPUnauthorized, "a bearer token is needed")
        self._require_leading()
        try:
            client = client_of(request)
            identity = await self._reviewer.identify(
                token, address, client if isinstance(client, PodIdentity) else None
            )
        except ClusterError as error:
            logger.warning("cannot review a token: %s", error)
            self._note_turned_away(address)
            raise _failure(
                web.HTTPServiceUnavailable, "tokens cannot be reviewed now", 1.0
            ) from error
        except TooManyTokensError as error:
            self._note_turned_away(address)
            raise _failure(web.HTTPTooManyRequests, str(error), error.retry_seconds) from error
        if identity is None:
            raise _failure(web.HTTPUnauthorized, "the token is not valid")
        speaker = self.speaker_of(identity)
        authenticate(request, identity)
        return speaker

    def speaker_of(self, identity: PodIdentity) -> Speaker:
        self._require_leading()
        worker = self._cache.worker(identity.namespace, identity.name, identity.uid)
        if worker is None:
            raise _failure(web.HTTPForbidden, f"pod {identity.name} is not a worker of a job")
        return *worker, identity.name

    def _require_leading(self) -> None:
        if not self._cache.primed or not self._leading():
            raise _failure(
                web.HTTPServiceUnavailable, "this operator is starting, or another one leads", 1.0
            )

    def _note_turned_away(self, address: str) -> None:
        if self.is_workers(address):
            self.hearing.turn_away()


@asynccontextmanager
async def listening(
    api: AgentApi,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[int]:
    """Yields the port."""
    connections = Connections(
        limits or ConnectionLimits(open=most_connections()), api.is_workers, api.hearing.waiting
    )
    watching = asyncio.create_task(api.hearing.watch())
    try:
        async with serving(
            [web.post(PATH, api.stream)],
            host,
            port,
            middlewares=[api.count],
            tls=tls,
            connections=connections,
            on_refusal=api.note_refusal,
            on_overload=api.hearing.turn_away,
        ) as bound:
            yield bound
    finally:
        watching.cancel()


def _describe_round(job: JobAgents, worker: str) -> bytes:
    agent = job.agents.get(worker)
    news = {"nudge": job.nudge, "dump": job.dump, "verdict": job.verdict}
    return job.answer.describe(worker, agent.round if agent else 0, news)


def _news_of(job: JobAgents) -> tuple[int, int, str | None]:
    return job.answer.number, job.nudge, job.verdict


def _line(kind: str, fields: bytes) -> bytes:
    return b'{"%b": %b}\n' % (kind.encode(), fields)


def _parse(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedHeartbeat(str(error)) from error


def _token_of(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer":
        raise _failure(web.HTTPUnauthorized, "a bearer token is needed")
    return token


def _too_many(speaker: Speaker, wait_seconds: float) -> web.HTTPException:
    return _failure(web.HTTPTooManyRequests, f"too many lines of pod {speaker[2]}", wait_seconds)


def _failure(
    kind: type[web.HTTPException], error: str, retry_seconds: float | None = None
) -> web.HTTPException:
    headers = None if retry_seconds is None else {"Retry-After": str(math.ceil(retry_seconds))}
    return kind(
        text=json.dumps({"error": error[:500]}), headers=headers, content_type="application/json"
    )
