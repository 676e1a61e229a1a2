"""The cluster's API server, asked over one connection pool: a kubectl process for each log would disturb what is measured."""

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml

JOBS = "elasticpytorchjobs"
JOB_API = "/apis/elasticpytorch.dev/v1alpha1"
ASK_SECONDS = 30.0
MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """The API server has refused a request; says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """What the bench asks of the API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    @asynccontextmanager
    async def of(cls, kubeconfig: str) -> AsyncIterator["Api"]:
        """Connect with the text of a kubeconfig of kind's: one cluster, one user with a certificate."""
        config = yaml.safe_load(kubeconfig)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:  # what Python's ssl reads only from a file
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            context.load_cert_chain(pair.name)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ASK_SECONDS)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(cluster["server"], connector=connector, timeout=timeout) as session:
            yield cls(session)

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Send a request; return the object that answers it.

        Raises:
            ApiError: the server said no.
        """
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with self._session.request(
            method, path, data=data, headers={"Content-Type": content_type}, timeout=timeout
        ) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            if response.status >= 400:
                raise ApiError(response.status, answer.get("message", f"{method} {path}: {response.status}"))
            return answer

    async def items(self, path: str, selector: str = "") -> list[dict[str, Any]]:
        """List objects."""
        answer = await self.ask("GET", f"{path}?labelSelector={quote(selector)}")
        return list(answer["items"])

    async def kill_pod(self, namespace: str, pod: str) -> None:
        """Do what `kubectl delete pod --grace-period=0 --force` does."""
        await self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod}", {"gracePeriodSeconds": 0})

    async def scale(self, namespace: str, job: str, replicas: int) -> None:
        """Do what `kubectl scale` does."""
        path = f"{JOB_API}/namespaces/{namespace}/{JOBS}/{job}/scale"
        await self.ask("PATCH", path, {"spec": {"replicas": replicas}}, MERGE_PATCH)

    async def cordon(self, node: str, *, cordoned: bool) -> None:
        """Do what `kubectl cordon` and `kubectl uncordon` do."""
        await self.ask("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned or None}}, MERGE_PATCH)

    async def watch(self, path: str, selector: str = "") -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield objects as they are and as they change, each with ADDED, MODIFIED or DELETED, until the watch ends."""
        async for line in self.lines(f"{path}?watch=1&labelSelector={quote(selector)}"):
            event = json.loads(line)
            yield event["type"], event["object"]

    async def lines(self, path: str) -> AsyncIterator[str]:
        """Yield what the server sends, line by line; nothing if it refuses."""
        async with self._session.get(path, read_bufsize=1 << 21) as response:
            if response.status < 400:
                async for line in response.content:
                    yield line.decode(errors="replace").rstrip("\n")
