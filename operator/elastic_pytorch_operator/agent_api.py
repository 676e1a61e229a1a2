"""The HTTP API that agents speak to, and the probes. docs/protocol.md is its contract."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from elastic_pytorch_operator.checkpoint_wait import LEAVE_SECONDS, leave_seconds
from elastic_pytorch_operator.cluster import ClusterError
from elastic_pytorch_operator.heartbeat import MalformedHeartbeat, parse_heartbeat
from elastic_pytorch_operator.identity import TokenReviewer
from elastic_pytorch_operator.job import Job, JobKey
from elastic_pytorch_operator.roster import JobRoster, Roster
from elastic_pytorch_operator.store import Store

logger = logging.getLogger(__name__)

HOLD_SECONDS = 20.0
MOST_BODY_BYTES = 64 * 1024
AGENTS_PER_SECOND = 1000  # heartbeats that one operator is asked to bear
PROGRESS_LATENCY_SECONDS = 1.0

Speaker = tuple[JobKey, str, str]  # job, its UID, worker


class AgentApi:
    """Hears agents and answers them.

    Args:
        store: knows which pods are workers of which job.
        roster: where what is heard is kept, and what is to be answered.
        reviewer: tells who speaks.
        request_work: called with a job and a delay in seconds when something has been heard that may matter.
    """

    def __init__(
        self, store: Store, roster: Roster, reviewer: TokenReviewer, request_work: Callable[[JobKey, float], None]
    ) -> None:
        self._store = store
        self._roster = roster
        self._reviewer = reviewer
        self._request_work = request_work

    def routes(self) -> list[web.RouteDef]:
        """The routes of an aiohttp application."""
        return [
            web.post("/v1/heartbeat", self._heartbeat),
            web.get("/v1/round", self._round),
            web.get("/healthz", self._healthy),
            web.get("/readyz", self._ready),
        ]

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, _: web.Request) -> web.Response:
        if not self._store.primed:
            return web.Response(status=503, text="jobs, pods and nodes have not been listed yet")
        return web.Response(text="ok")

    async def _heartbeat(self, request: web.Request) -> web.Response:
        key, job_uid, worker = await self._speaker(request)
        try:
            beat = parse_heartbeat(json.loads(await request.read()))
        except (MalformedHeartbeat, ValueError, RecursionError) as error:
            return _refuse(400, str(error))
        matters = self._roster.hear(job_uid, worker, beat, time.monotonic())
        if matters:
            self._request_work(key, 0.0)
        elif beat.progress.step is not None:
            self._request_work(key, PROGRESS_LATENCY_SECONDS)
        job, spec = self._roster.job(job_uid), self._store.job(key)
        return web.json_response(
            {
                "heartbeatSeconds": max(1.0, self._roster.agent_count / AGENTS_PER_SECOND),
                "leaveSeconds": leave_seconds(spec) if isinstance(spec, Job) else LEAVE_SECONDS,
                "round": job.round.number if job.round else 0,
                "nudge": job.nudge,
            }
        )

    async def _round(self, request: web.Request) -> web.Response:
        key, job_uid, worker = await self._speaker(request)
        try:
            after, nudge, hold = (int(request.query.get(name, "0")) for name in ("after", "nudge", "hold"))
        except ValueError:
            return _refuse(400, "after, nudge and hold must be whole numbers")
        job = self._roster.job(job_uid)
        if hold <= 0:
            return web.json_response(_describe_round(job, worker))
        self._roster.open_poll(job_uid, worker)
        until = time.monotonic() + min(hold, HOLD_SECONDS)
        dropped = True
        try:
            while not _has_news(job, after, nudge) and (left := until - time.monotonic()) > 0:
                try:
                    await asyncio.wait_for(job.news.wait(), left)
                except TimeoutError:
                    break
            dropped = False
            return web.json_response(_describe_round(job, worker))
        finally:
            self._roster.close_poll(job_uid, worker, time.monotonic())
            if dropped:
                self._request_work(key, 0.0)

    async def _speaker(self, request: web.Request) -> Speaker:
        """Who asks.

        Raises:
            web.HTTPException: it cannot be told, or is no worker.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            raise _failure(web.HTTPUnauthorized, "a bearer token is needed")
        if not self._store.primed:
            raise _failure(web.HTTPServiceUnavailable, "the operator is starting")
        try:
            identity = await self._reviewer.identify(token)
        except ClusterError as error:
            logger.warning("cannot review a token: %s", error)
            raise _failure(web.HTTPServiceUnavailable, "tokens cannot be reviewed now") from error
        if identity is None:
            raise _failure(web.HTTPUnauthorized, "the token is not valid")
        worker = self._store.worker(identity.namespace, identity.name, identity.uid)
        if worker is None:
            raise _failure(web.HTTPForbidden, f"pod {identity.name} is not a worker of a job")
        key, job_uid = worker
        return key, job_uid, identity.name


@asynccontextmanager
async def listening(api: AgentApi, host: str, port: int) -> AsyncIterator[int]:
    """Serves agents for as long as the context lasts; yields the port, which may have been 0."""
    app = web.Application(client_max_size=MOST_BODY_BYTES)
    app.add_routes(api.routes())
    # Cancelling a handler whose client has gone is how a closed long poll is noticed at once.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, reuse_address=True)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _has_news(job: JobRoster, after: int, nudge: int) -> bool:
    return (job.round is not None and job.round.number > after) or job.nudge != nudge or job.verdict is not None


def _describe_round(job: JobRoster, worker: str) -> dict[str, Any]:
    """The body of an answer to a long poll. Without a round declared, number 0, which is newer than nothing."""
    answer: dict[str, Any] = {
        "round": 0,
        "orderlySince": 0,
        "members": [],
        "store": None,
        "cause": "",
        "nudge": job.nudge,
        "dump": job.dump,
        "worker": worker,
        "verdict": job.verdict,
    }
    if job.round is not None:
        members = [{"worker": m.worker, "index": m.index, "address": m.address} for m in job.round.members]
        answer |= {"round": job.round.number, "orderlySince": job.round.orderly_since, "members": members}
        answer["cause"] = f"{job.round.reason}: {job.round.cause}"
        if members:
            answer["store"] = {"address": members[0]["address"], "port": job.round.store_port}
    return answer


def _refuse(code: int, error: str) -> web.Response:
    return web.json_response({"error": error[:500]}, status=code)


def _failure(kind: type[web.HTTPException], error: str) -> web.HTTPException:
    headers = {"Retry-After": "1"} if kind is web.HTTPServiceUnavailable else None
    return kind(text=json.dumps({"error": error}), headers=headers, content_type="application/json")
