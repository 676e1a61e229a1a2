"""Watches jobs, pods, nodes and, on request, Kueue's Workloads; the only module that knows kopf.

It writes neither finalizers nor annotations, so that `kubectl delete` works without the operator.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import kopf
from kopf._cogs.structs.references import Insights

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import read_list
from elastic_pytorch_operator.api.resources import JOBS, NODES, PODS, WORKLOADS
from elastic_pytorch_operator.api.write_errors import UNAVAILABLE_CODES
from elastic_pytorch_operator.informer.cache import WATCHES, Cache
from elastic_pytorch_operator.model.reduced_objects import reducer
from elastic_pytorch_operator.spec.job import JobKey

logger = logging.getLogger(__name__)

RequestWork = Callable[[Iterable[JobKey]], None]
RESOURCES = {resource.kind: resource for resource in (JOBS, PODS, NODES, WORKLOADS)}
_LISTED = frozenset(resource.plural for resource in RESOURCES.values())
# Before a watch that has ended begins again: at first, and at most.
MIN_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
# After so long a watch the next pause is short: kopf itself retries for a minute.
HEALTHY_SECONDS = 120.0
# A quiet watch is opened again after that time, so that a stall ends.
SERVER_TIMEOUT_SECONDS = 270
CLIENT_TIMEOUT_SECONDS = 300
CONNECT_TIMEOUT_SECONDS = 10
REQUEST_TIMEOUT_SECONDS = 30
PAGE_SIZE = 100  # its objects are handled in one turn of the event loop
# How long kopf keeps a task, with all of an object's last version, after an event.
IDLE_SECONDS = 0.5


async def watch_cluster(
    cache: Cache,
    request_work: RequestWork,
    namespaces: Sequence[str] = (),
    *,
    workloads: bool = False,
) -> None:
    """Keeps one watch for each kind in each namespace; without namespaces, in the cluster."""
    for name in ("kopf", "aiohttp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("running", "orchestration"):  # they log the traceback of each watch that ends
        logging.getLogger(f"kopf._core.reactor.{name}").setLevel(logging.CRITICAL)
    async with asyncio.TaskGroup() as watches:
        watches.create_task(_keep_watching("Node", "", cache, request_work))
        for namespace in namespaces or ("",):
            for kind in (names.KIND, "Pod", *([kueue.WORKLOAD] if workloads else [])):
                watches.create_task(_keep_watching(kind, namespace, cache, request_work))


async def _keep_watching(
    kind: str, namespace: str, cache: Cache, request_work: RequestWork
) -> None:
    """Begins again after each error.

    A namespace that could not be listed is watched only after a list: else a job would be known
    before its pods, and get them twice.
    """
    pause_seconds, ended = MIN_PAUSE_SECONDS, None
    while True:
        if namespace in cache.unavailable:
            await asyncio.sleep(MIN_PAUSE_SECONDS)
            continue
        began = time.monotonic()
        if ended is not None:
            cache.watch_lag.begins_again(began)
        ended = await _watch(kind, namespace, cache, request_work)
        cache.watch_lag.fails(WATCHES[kind], namespace, time.monotonic())
        # A list shows when to begin again.
        if namespace and getattr(ended, "status", 0) in UNAVAILABLE_CODES:
            cache.unavailable |= {namespace}
        if time.monotonic() - began > HEALTHY_SECONDS:
            pause_seconds = MIN_PAUSE_SECONDS
        logger.warning(
            "a watch has ended, and begins again: %s",
            ended,
            extra={"watch": WATCHES[kind], "namespace": namespace, "retry_seconds": pause_seconds},
        )
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)


async def _watch(
    kind: str, namespace: str, cache: Cache, request_work: RequestWork
) -> BaseException:
    """Watches the objects of a kind until kopf gives up; returns why.

    `kopf.operator` would then cancel every younger task, also of other watches and of agents.
    """
    insights = Insights()
    tasks = await kopf.spawn_tasks(
        registry=_registry(kind, cache, request_work),
        settings=kopf_settings(),
        insights=insights,
        clusterwide=not namespace,
        namespaces=[namespace] if namespace else [],
        standalone=True,
        # kopf derives the default from the user name; a numeric UID has none.
        identity=names.OPERATOR,  # type: ignore[arg-type]
    )
    tasks = [*tasks, asyncio.create_task(_require_resource(insights, kind))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    reasons = [found for found in ended if isinstance(found, Exception)]
    return reasons[0] if reasons else RuntimeError("kopf has ended by itself")


async def _require_resource(insights: Insights, kind: str) -> None:
    """Raises LookupError if the API server does not serve a kind, as while it starts.

    kopf asks for that once, and would wait and watch nothing.
    """
    await insights.ready_resources.wait()
    if not insights.watched_resources:
        resource = RESOURCES[kind]
        raise LookupError(
            f"the API server does not serve {resource.plural} of {resource.api_version}: is its "
            "CRD installed?"
        )
    await asyncio.Event().wait()


class _NoDifferences(kopf.DiffBaseStorage):
    """Keeps nothing to compare with: no handler needs the copy of each object."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None: ...


def kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.watching.label_selectors.update(
        {resource.plural: resource.label for resource in (PODS, WORKLOADS)}
    )
    settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
    # Or else this process is killed ten minutes after a watch has ended.
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.finalizer = f"{names.GROUP}/unused"
    settings.persistence.diffbase_storage = _NoDifferences()
    return settings


def api_server(environment: Mapping[str, str]) -> str:
    """The URL of the API server that the kubelet gives to each container, if it does.

    kopf's own is a name, for which a replica would wait while the cluster's DNS is away.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not (host and port):
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _registry(kind: str, cache: Cache, request_work: RequestWork) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    known: dict[kopf.ConnectionInfo, kopf.AiohttpSession] = {}

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        account = kopf.login_with_service_account(**kwargs)
        if account is not None:
            account = replace(account, server=api_server(os.environ) or account.server)
        else:
            account = kopf.login_with_kubeconfig(**kwargs)
        if account is None:
            return None
        # kopf recognises a refused account by its session.
        if account not in known:
            known[account] = _session_of(account)
        return known[account]

    @kopf.on.event(RESOURCES[kind].api_version, RESOURCES[kind].plural, registry=registry)
    async def take(event: kopf.RawEvent, **_: Any) -> None:
        found: dict[str, Any] = {**event["object"]}
        event["object"].pop("spec", None)  # it may be large, and kopf keeps it for IDLE_SECONDS
        request_work(cache.observe_change(kind, event["type"], found, time.monotonic()))

    return registry


class _Answer(aiohttp.ClientResponse):
    """Reads a page's objects one by one, unlike kopf."""

    async def json(self, **options: Any) -> Any:
        resource = self.url.path.rpartition("/")[2]
        if not self.ok or resource not in _LISTED:
            return await super().json(**options)
        return await read_list(self.content.iter_any(), reducer(resource))


def _session_of(account: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=account.as_ssl_context()),
        headers=account.as_http_headers(),
        proxy=account.proxy_url,
        trust_env=account.trust_env,
        response_class=_Answer,
    )
    return kopf.AiohttpSession(
        server=account.server,
        default_namespace=account.default_namespace,
        priority=account.priority,
        aiohttp_session=session,
    )
