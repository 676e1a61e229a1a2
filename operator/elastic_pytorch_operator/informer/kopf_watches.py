"""The kopf shell: watches jobs, pods, nodes and, where asked to, Kueue's Workloads. The cache gets what they report.

This is the only module that knows kopf.

Only event handlers: they write nothing to the objects, neither finalizers nor annotations, so that `kubectl delete` works with the
operator gone.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import kopf

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.spec.job import JobKey

# A quiet watch is opened again after that time, so that a stall ends.
SERVER_TIMEOUT_SECONDS = 270
CLIENT_TIMEOUT_SECONDS = 300
CONNECT_TIMEOUT_SECONDS = 10
REQUEST_TIMEOUT_SECONDS = 30
PAGE_SIZE = 100  # its objects are handled in one turn of the event loop
IDLE_SECONDS = 0.5  # for which kopf keeps a task for an object, with all of the object's last version, after an event


async def watch_cluster(
    cache: Cache, request_work: Callable[[JobKey, float], None], namespaces: Sequence[str] = (), *, workloads: bool = False
) -> None:
    """Keeps the cache up to date until it is cancelled.

    Args:
        cache: takes what the watches report.
        request_work: called for each job that a change may concern.
        namespaces: whose jobs and pods are watched; none: those of all. Nodes belong to no namespace.
        workloads: Kueue's Workloads are watched, too.

    Raises:
        Exception: kopf has given up, for instance because the resource is not there; the process should end and be restarted.
    """
    registry = kopf.OperatorRegistry()
    _register(registry, cache, request_work, workloads=workloads)
    for name in ("kopf", "aiohttp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry,
        settings=kopf_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        stop_flag=asyncio.Event(),
        # kopf derives the default from the user name; a numeric UID has none.
        identity=names.OPERATOR,  # type: ignore[arg-type]
    )


class _NoDifferences(kopf.DiffBaseStorage):
    """Keeps nothing to compare an object with: kopf would copy all of an object at each event, for handlers that there are none of."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None: ...


def kopf_settings() -> kopf.OperatorSettings:
    """How kopf watches."""
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.queueing.idle_timeout = IDLE_SECONDS
    for resource in ("pods", kueue.WORKLOADS):
        settings.watching.label_selectors[resource] = f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"
    settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.finalizer = f"{names.GROUP}/unused"
    settings.persistence.diffbase_storage = _NoDifferences()
    return settings


def api_server(environment: Mapping[str, str]) -> str:
    """The URL of the API server as the kubelet tells each container; empty: it has not.

    kopf's own is a name. A replica that starts while the cluster's DNS is away would wait for it, and see nothing that happens.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not (host and port):
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _register(
    registry: kopf.OperatorRegistry, cache: Cache, request_work: Callable[[JobKey, float], None], *, workloads: bool
) -> None:
    def take(kind: str, event: kopf.RawEvent) -> None:
        for key in cache.observe_change(kind, event["type"], event["object"], time.monotonic()):
            request_work(key, 0.0)

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        account = kopf.login_with_service_account(**kwargs)
        if account is None:
            return kopf.login_with_kubeconfig(**kwargs)
        return replace(account, server=api_server(os.environ) or account.server)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def on_job(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        take(names.KIND, event)

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def on_pod(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        take("Pod", event)

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def on_node(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        take("Node", event)

    if workloads:

        @kopf.on.event(kueue.GROUP, kueue.VERSION, kueue.WORKLOADS, registry=registry)
        async def on_workload(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
            take(kueue.WORKLOAD, event)
