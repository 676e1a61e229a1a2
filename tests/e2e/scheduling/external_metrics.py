"""Serves external.metrics.k8s.io from the operator's metrics; runs in a pod of the test.

    external_metrics.py URL…

It asks each URL, one for each replica of the operator: only the leader exports the series of jobs.
"""

import asyncio
import logging
import re
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
PORT = 6443


def read_series(metric: str, labels: dict[str, str]) -> list[str]:
    """The values of the series of a metric that have these labels."""
    found = []
    for url in sys.argv[1:]:
        with urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
        for series, value in re.findall(rf"^{metric}\{{(.*)\}} (\S+)$", text, re.MULTILINE):
            if labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', series)).items():
                found.append(value)
    return found


async def answer_metric(request: web.Request) -> web.Response:
    """A metric's values for one namespace, as the HorizontalPodAutoscalers' controller asks."""
    pairs = (
        pair.partition("=") for pair in request.query.get("labelSelector", "").split(",") if pair
    )
    labels = {key: value for key, _, value in pairs} | {
        "namespace": request.match_info["namespace"]
    }
    metric = request.match_info["metric"]
    values = await asyncio.to_thread(read_series, metric, labels)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {
            "metricName": metric,
            "metricLabels": labels,
            "timestamp": now,
            "value": f"{round(float(value) * 1000)}m",
        }
        for value in values
    ]
    return web.json_response(
        {
            "kind": "ExternalMetricValueList",
            "apiVersion": GROUP_VERSION,
            "metadata": {},
            "items": items,
        }
    )


async def answer_discovery(_: web.Request) -> web.Response:
    """What the group has; the API server asks for it to see whether this server is up."""
    return web.json_response(
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": GROUP_VERSION,
            "resources": [],
        }
    )


def server_context(folder: Path) -> ssl.SSLContext:
    """A TLS context with a certificate of its own making."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "external-metrics")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
    )
    certificate = builder.sign(key, hashes.SHA256())
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def main() -> None:
    logging.basicConfig(level=logging.INFO)  # the requests
    app = web.Application()
    app.router.add_get(f"/apis/{GROUP_VERSION}", answer_discovery)
    app.router.add_get(f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{{metric}}", answer_metric)
    web.run_app(app, port=PORT, ssl_context=server_context(Path("/tmp")), print=None)


if __name__ == "__main__":
    main()
