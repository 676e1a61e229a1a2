"""The cluster's API server: a kubectl process for each log would disturb the measurement."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from elastic_pytorch_client import names
from elastic_pytorch_client.cluster.kubernetes_api import LineCutter
from elastic_pytorch_local.faults.driver import DriverError
from kubernetes.aio import client, config

REQUEST = aiohttp.ClientTimeout(total=30.0)
REMOVAL_LOOK_SECONDS = 0.5
STREAM = aiohttp.ClientTimeout(total=None, sock_connect=30.0)


class ApiError(DriverError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    def __init__(self, connection: client.ApiClient, namespace: str) -> None:
        self._connection, self.namespace = connection, namespace
        self._server = connection.configuration.host
        # Empty if the kubeconfig has a client certificate.
        token = connection.configuration.api_key.get("BearerToken", "")
        self._headers = {"Authorization": token} if token else {}

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path, token: str = "") -> AsyncIterator["Api"]:
        """Connects as the kubeconfig's user, or by a token alone."""
        found = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
        for user in found["users"] if token else ():
            user["user"] = {"token": token}
        contexts = {each["name"]: each["context"] for each in found["contexts"]}
        async with await config.new_client_from_config_dict(found) as connection:  # type: ignore[no-untyped-call]
            # No proxy: the cluster is on this machine.
            connection.configuration.client_session_kwargs = {"trust_env": False}
            namespace = contexts[found["current-context"]].get("namespace")
            yield cls(connection, namespace or "default")

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns the answer's object, or raises ApiError; a patch is a merge patch."""
        sends = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = self._headers | {"Content-Type": sends}
        sent = await self._connection.call_api(
            method, self._server + path, headers, body, _request_timeout=REQUEST
        )
        answer: dict[str, Any] = await sent.response.json(content_type=None)
        if sent.status >= 400:
            raise ApiError(sent.status, answer.get("message", f"{method} {path}: {sent.status}"))
        return answer

    async def watch(self, path: str, selector: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yields objects and their changes, with ADDED, MODIFIED or DELETED, until it ends."""
        async for line in self.lines(f"{path}?watch=1&{selector}"):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            yield event["type"], event["object"]

    async def lines(self, path: str) -> AsyncIterator[str]:
        """Yields the lines of an answer; none if the server refuses."""
        sent = await self._connection.call_api(
            "GET", self._server + path, self._headers, _request_timeout=STREAM
        )
        async with sent.response as response:
            if response.status < 400:
                lines = LineCutter()
                async for chunk in response.content.iter_any():
                    for line in lines.take(chunk):
                        yield line
                if rest := lines.take_rest():
                    yield rest


async def finds(api: Api, method: str, path: str, body: dict[str, Any] | None = None) -> bool:
    """Sends a request about an object; returns whether the object exists."""
    try:
        await api.ask(method, path, body)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


async def remove_namespace(api: Api, namespace: str, seconds: float) -> None:
    """Deletes a namespace, and returns once it is gone; raises TimeoutError if it is late."""
    path = f"/api/v1/namespaces/{namespace}"
    await finds(api, "DELETE", path)
    async with asyncio.timeout(seconds):
        while await finds(api, "GET", path):  # noqa: ASYNC110
            await asyncio.sleep(REMOVAL_LOOK_SECONDS)


def pods_path(namespace: str, pod: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{pod}" if pod else "")


def jobs_path(namespace: str, job: str = "") -> str:
    jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    return jobs + (f"/{job}" if job else "")
