"""Serves each replica's metrics over TLS, to clients that may read them.

The certificate is that of the agents' Service: a client checks it under that name.
"""

import asyncio
import logging
import ssl

from elastic_pytorch_operator.api.resources import SECRETS
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.http.connections import Connections
from elastic_pytorch_operator.http.server import serving
from elastic_pytorch_operator.monitoring.probes import PROBE_LIMITS, Probes
from elastic_pytorch_operator.monitoring.scrape_access import ScrapeAccess
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.tls.secret import (
    UnusableSecretError,
    load_certificate,
    read_existing,
    read_trust,
    secret_name,
    server_context,
)

logger = logging.getLogger(__name__)

# Between two looks at the Secret.
CERTIFICATE_SECONDS = 3600.0
RETRY_SECONDS = 1.0


async def serve_metrics(cluster: Cluster, settings: ReplicaSettings, probes: Probes) -> None:
    tls = server_context()
    await _load(cluster, settings, tls)
    async with serving(
        probes.metrics_routes(),
        settings.host,
        settings.metrics_port,
        middlewares=[ScrapeAccess(cluster).check],
        tls=tls,
        connections=Connections(PROBE_LIMITS),
    ):
        while True:
            await asyncio.sleep(CERTIFICATE_SECONDS)
            await _load(cluster, settings, tls)


async def _load(cluster: Cluster, settings: ReplicaSettings, tls: ssl.SSLContext) -> None:
    logged = False
    while True:
        try:
            existing = settings.existing_secret
            secret = await cluster.get(
                SECRETS, settings.namespace, existing or secret_name(settings.name)
            )
            host = settings.server_name
            shown = read_existing(secret, host) if existing else read_trust(secret)[0].shown
            if shown is not None:
                load_certificate(shown, tls)
                return
        except (ClusterError, UnusableSecretError) as error:
            if not logged:
                logger.warning("cannot read the certificate of the metrics: %s", error)
            logged = True
        await asyncio.sleep(RETRY_SECONDS)
