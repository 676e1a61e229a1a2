"""One replica of the operator: it watches, takes part in the election, and acts while it leads.

A replica on standby watches as well, but writes nothing and does not listen to agents. One that no
longer leads ends, because its memory may be out of date.
"""

import asyncio
import itertools
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api.resources import SECRETS
from elastic_pytorch_operator.cluster.clocks import TimeOfDay, boot_seconds
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.http.connections import Connections
from elastic_pytorch_operator.http.server import serving
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.node_index import NodeIndex
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.leadership.election import Elector
from elastic_pytorch_operator.leadership.election_thread import ElectionThread
from elastic_pytorch_operator.leadership.fence import Fence
from elastic_pytorch_operator.leadership.leader_endpoint import (
    Endpoint,
    keep_endpoint,
    node_of,
    take_endpoint,
)
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.monitoring.probes import PROBE_LIMITS, Probes, Scrapes, failed_checks
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.runtime.gauges import read_gauges
from elastic_pytorch_operator.runtime.secure_metrics import serve_metrics
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey
from elastic_pytorch_operator.tls.rotation import Shown, Trust
from elastic_pytorch_operator.tls.secret import (
    UnusableSecretError,
    keep_trust,
    load_certificate,
    read_existing,
    secret_name,
    server_context,
)

logger = logging.getLogger(__name__)

PRIME_RETRY_SECONDS = 1.0
PRIME_TRIES = 5  # before it goes on without namespaces that cannot be listed
TRUST_SECONDS = 3600.0  # between two checks of the certificate
DRAIN_SECONDS = 3.0  # for writes that are on their way when the replica stops
END_SECONDS = 2.0  # for a part that has been asked to end

Watch = Callable[[Cache, Callable[[Iterable[JobKey]], None]], Awaitable[None]]
Listen = Callable[[AgentApi, str, int, ssl.SSLContext | None], AbstractAsyncContextManager[Any]]


class LeadershipLostError(Exception):
    """Another replica leads, or the API server could not be asked for too long."""


class Replica:
    """Its monotonic seconds are those of the event loop.

    Args:
        clock: of the election.
        election: its thread and its cluster; None: those of the replica.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ReplicaSettings,
        watch: Watch,
        *,
        metrics: Metrics | None = None,
        answering_since: Callable[[], float | None] = lambda: 0.0,
        time_of_day: TimeOfDay | None = None,
        clock: Callable[[], float] = boot_seconds,
        election: tuple[ElectionThread, Cluster] | None = None,
        listen: Listen = listening,
    ) -> None:
        self._clock = asyncio.get_running_loop().time
        self._listen = listen
        self._settings = settings
        self._watch = watch
        self._answering_since = answering_since
        self._metrics = metrics or Metrics()
        self._time_of_day = time_of_day or TimeOfDay()
        thread, asks = election or (None, cluster)
        self._elect = thread.run if thread else _run_here
        self._elector = (
            Elector(
                asks,
                settings.namespace,
                settings.name,
                settings.pod,
                clock,
                settings.timing,
                lambda: thread is None or thread.may_renew,
            )
            if settings.namespace
            else None
        )
        self._fence = Fence(cluster, self._may_act)
        self._cluster = self._fence.cluster
        self._stopped = False
        self._listening = False
        self._trust: Trust | None = None
        self._shown: Shown | None = None
        self._primed = asyncio.Event()
        self._cache = Cache(
            defaults=settings.defaults,
            node_index=NodeIndex(settings.marks),
            watch_lag=WatchLag(by_namespace=bool(settings.watched)),
        )
        self._registry = AgentRegistry(lambda: self._cache.running_workers, self._clock)
        self._queue: WorkQueue[JobKey] = WorkQueue(self._metrics, begun=False, clock=self._clock)
        self._controller = Controller(
            self._cluster,
            self._cache,
            self._registry,
            self._queue,
            AgentSettings(settings.operator_url, settings.agent_image),
            self._clock,
            metrics=self._metrics,
            leading=self._may_act,
            slots=WriteSlots(self._clock, max_writes=settings.max_writes),
            time_of_day=self._time_of_day,
            kueue=settings.kueue,
        )
        reviewer = TokenReviewer(
            self._cluster,
            self._metrics,
            heartbeat_seconds=self._registry.heartbeat_seconds,
            clock=self._clock,
        )
        self._api = AgentApi(
            self._cache,
            self._registry,
            reviewer,
            self._queue.add,
            lambda: self.leading,
            self._metrics,
            clock=self._clock,
        )
        self._probes = Probes(
            self._failed_checks, lambda: self._cache.primed, Scrapes(self._begin_to_render).text
        )

    @property
    def leading(self) -> bool:
        return self._listening and self._may_act()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until it is stopped, no longer leads (LeadershipLostError), or a part has failed."""
        settings, limited = self._settings, Connections(PROBE_LIMITS)
        routes = self._probes.probe_routes() if settings.metrics_port else self._probes.routes()
        async with serving(routes, settings.host, settings.probe_port, connections=limited):
            await self.work(stop)

    async def work(self, stop: asyncio.Event) -> None:
        leadership = asyncio.create_task(self._campaign(), name="leadership")
        watches = asyncio.create_task(self._watch_primed(), name="watches")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        others = {watches, stopping}
        if self._settings.metrics_port:
            serves = serve_metrics(self._cluster, self._settings, self._probes)
            others.add(asyncio.create_task(serves, name="metrics"))
        try:
            done, _ = await asyncio.wait({leadership, *others}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.get_name() != "stop":
                    task.result()
                    raise RuntimeError(f"{task.get_name()} ended by itself")
        finally:
            self._stopped = True
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._fence.drained()
            leadership.cancel()
            await asyncio.wait({leadership}, timeout=END_SECONDS)
            if self._elector is not None:
                await self._elect(self._elector.give_back())
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=END_SECONDS)

    async def _watch_primed(self) -> None:
        await self._prime()
        self._primed.set()
        logger.info("ready", extra={"jobs": len(self._cache.keys), "nodes": len(self._cache.nodes)})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._controller.resync())
            await self._watch(self._cache, self._queue.add_all)
            raise RuntimeError("the watches ended by themselves")

    async def _campaign(self) -> None:
        await self._primed.wait()
        if self._elector is None:
            await self._act()
            return
        await self._elect(self._elector.acquire())
        acting = asyncio.create_task(self._act())
        renewing = asyncio.create_task(self._elect(self._elector.renew()))
        try:
            done, _ = await asyncio.wait({acting, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if acting in done:
                acting.result()
            raise LeadershipLostError(
                f"the lease is {self._elector.holder or 'no replica'}'s, or could not be renewed"
            )
        finally:
            for task in (acting, renewing):
                task.cancel()
            await asyncio.wait({acting, renewing}, timeout=END_SECONDS)

    async def _act(self) -> None:
        """Does the leader's work, after a list, which has what the last leader wrote."""
        self._queue.begin()  # before the listing, which adds every job
        settings = self._settings
        tls = server_context() if urlsplit(settings.operator_url).scheme == "https" else None
        # Until all is prepared, nothing listens: agents that the kernel refuses retry sooner than
        # after an answer.
        async with asyncio.TaskGroup() as preparations:
            if tls is not None:
                preparations.create_task(self._keep_trust(tls))
            if settings.endpoint is not None:
                preparations.create_task(self._succeed(settings.endpoint))
            preparations.create_task(self._prime())
        async with (
            self._listen(self._api, settings.host, settings.port, tls),
            asyncio.TaskGroup() as tasks,
        ):
            self._cache.pods.mark_ended_before_takeover()
            self._controller.listen()
            self._listening = True
            logger.info("listening to agents", extra={"jobs": len(self._cache.keys)})
            tasks.create_task(self._controller.work())
            if settings.endpoint is not None:
                tasks.create_task(
                    keep_endpoint(self._cluster, settings.namespace, settings.endpoint)
                )
            while tls is not None:
                await asyncio.sleep(TRUST_SECONDS)
                await self._keep_trust(tls)

    async def _succeed(self, endpoint: Endpoint) -> None:
        before = await take_endpoint(self._cluster, self._settings.namespace, endpoint)
        self._controller.lost_leader_node = (
            node_of(before, self._elector.lost_leader) if self._elector else ""
        )

    async def _keep_trust(self, tls: ssl.SSLContext) -> None:
        while True:
            try:
                self._shown = shown = await self._certificate()
                break
            except (ClusterError, UnusableSecretError) as error:
                logger.warning("cannot keep the certificates: %s", error)
                await asyncio.sleep(PRIME_RETRY_SECONDS)
        load_certificate(shown, tls)
        self._controller.set_authorities(shown.authorities)

    async def _certificate(self) -> Shown:
        settings, cluster = self._settings, self._cluster
        if settings.existing_secret:
            secret = await cluster.get(SECRETS, settings.namespace, settings.existing_secret)
            return read_existing(secret, settings.server_name)
        hosts = [settings.server_name]
        now = self._time_of_day().timestamp()
        name = secret_name(settings.name)
        self._trust = await keep_trust(cluster, settings.namespace, hosts, now, self._trust, name)
        shown = self._trust.shown
        assert shown is not None  # it has just been made, if there was none
        return shown

    async def _prime(self) -> None:
        for tries in itertools.count(1):
            try:
                await self._controller.prime(leave_out_failing=tries > PRIME_TRIES)
                return
            except ClusterError as error:
                logger.warning("cannot list the cluster yet: %s", error)
                await asyncio.sleep(PRIME_RETRY_SECONDS)

    def _may_act(self) -> bool:
        return not self._stopped and (self._elector is None or self._elector.leading)

    def _failed_checks(self) -> tuple[str, ...]:
        return failed_checks(
            self._clock(),
            self._cache.watch_lag.silent_since(),
            self._answering_since(),
            self._controller.longest_work_seconds,
        )

    def _begin_to_render(self) -> Callable[[], bytes]:
        gauges = read_gauges(
            self._cache,
            self._registry,
            self._queue,
            leading=self.leading,
            now=self._clock(),
            time=self._time_of_day().isoformat(),
            longest_work_seconds=self._controller.longest_work_seconds,
            certificate_ends_at=self._shown.ends_at if self._shown else None,
        )
        return partial(self._metrics.render, gauges)


async def _run_here(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine


async def run_replicas(begin: Callable[[], Replica], stop: asyncio.Event) -> None:
    """Runs replicas, each after one that no longer leads, until it is stopped.

    The kubelet would wait longer before each restart of the container.
    """
    while not stop.is_set():
        try:
            await begin().run(stop)
        except LeadershipLostError as lost:
            logger.warning("no longer leads, and begins again: %s", lost)
