"""Requests to the API server from the test's own process: milliseconds, not kubectl's tenths."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config

from tests.paths import ROOT

KUBECONFIG = ROOT / ".cluster" / "kubeconfig"
TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answers.

    Attributes:
        code: the HTTP status.
        body: the object, or a Status.
        words: what kubectl would show of it as an error or a warning; empty: nothing.
    """

    code: int
    body: dict[str, Any]
    words: str

    @property
    def spec(self) -> dict[str, Any]:
        assert self.code < 300, self.words
        spec: dict[str, Any] = self.body["spec"]
        return spec


@dataclass(frozen=True, slots=True)
class Resource:
    api_version: str
    plural: str
    namespace: str

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> Answer:
        """Creates an object, as `kubectl create` does: unknown fields are an error."""
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self._request("POST", "", manifest, query)

    def get(self, name: str) -> Answer:
        return self._request("GET", f"/{name}")

    def list(self, selector: str) -> list[dict[str, Any]]:
        """Reads the objects with some labels; raises if that is refused."""
        answer = self._request("GET", "", query={"labelSelector": selector})
        assert answer.code < 300, answer.words
        items: list[dict[str, Any]] = answer.body["items"]
        return items

    def patch(
        self, name: str, change: dict[str, Any], subresource: str = "", *, dry_run: bool = False
    ) -> Answer:
        query = {"dryRun": "All"} if dry_run else None
        return self._request("PATCH", f"/{name}/{subresource}".rstrip("/"), change, query)

    def delete(self, name: str) -> Answer:
        """Deletes an object, and what it owns after it."""
        return self._request("DELETE", f"/{name}", {"propagationPolicy": "Background"})

    def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
    ) -> Answer:
        root = (
            f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        )
        target = f"{root}/namespaces/{self.namespace}/{self.plural}{path}" + (
            f"?{urlencode(query)}" if query else ""
        )
        status, headers, content = _exchange(method, target, body)
        if status == 404 and not content.startswith(b"{"):  # the API server does not serve the kind
            return Answer(status, {}, content.decode())
        found = json.loads(content)
        return Answer(
            status,
            found,
            str(found.get("message", "")) if status >= 300 else headers.get("Warning", ""),
        )


def read_log(namespace: str, pod: str) -> str | None:
    """The log of a pod's only container; None if there is none, or the pod has several."""
    status, _, content = _exchange("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log")
    return content.decode(errors="replace") if status < 300 else None


def _exchange(
    method: str, target: str, body: dict[str, Any] | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    client = _client()
    _, url, headers, _, _ = client.param_serialize(
        method,
        target,
        header_params={"Accept": "application/json, */*", "Content-Type": kind},
        query_params=[],
        auth_settings=["BearerToken"],
    )
    response = client.call_api(method, url, headers, body=body, _request_timeout=TIMEOUT_SECONDS)
    return response.status, response.headers, response.read()


@functools.cache
def _client() -> ApiClient:
    return new_client_from_config(str(KUBECONFIG))
