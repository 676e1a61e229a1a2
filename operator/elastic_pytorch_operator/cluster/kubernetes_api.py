"""The real cluster, through the official client without its models, which cost 65 us a pod."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config

from elastic_pytorch_operator.api.manifest import Manifest, read_list
from elastic_pytorch_operator.api.resources import Resource
from elastic_pytorch_operator.cluster.clocks import ServerClock
from elastic_pytorch_operator.cluster.interface import (
    MAX_QUOTED,
    Change,
    ClusterError,
    PodIdentity,
    TokenKeys,
    error_of_answer,
)
from elastic_pytorch_operator.model.reduced_objects import reducer

PAGE_SIZE = 250
REQUEST_TIMEOUT_SECONDS = 15
# Of a write that webhooks may hold up, each for up to 30 s. In a shorter request, the API server
# answers 504 without the webhook's name, and does not pass over webhooks whose failurePolicy is
# Ignore (measured with 1.34).
ADMISSION_TIMEOUT_SECONDS = 32
WRITE_TIMEOUT_SECONDS = 35
# Writes, token reviews and lists together; the lease has another connection.
MAX_CONNECTIONS = 200
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
OnAnswer = Callable[[str, int], None]  # takes a method, and a code; 0: there is no answer


class KubernetesCluster:
    def __init__(
        self,
        configuration: client.Configuration,
        on_answer: OnAnswer,
        namespaces: Sequence[str] = (),
    ) -> None:
        configuration.connection_pool_maxsize = MAX_CONNECTIONS
        # By itself, aiohttp reads the environment and ~/.netrc for each request: 40 % of its cost.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
        self._api = client.ApiClient(configuration)
        self.namespaces = namespaces
        self._on_answer = on_answer
        # Monotonic seconds; None: the API server did not answer the last request.
        self.answering_since: float | None = None
        self.server_clock = ServerClock()

    @classmethod
    async def connect(
        cls, on_answer: OnAnswer, namespaces: Sequence[str] = ()
    ) -> "KubernetesCluster":
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls(configuration, on_answer, namespaces)

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        items: list[Manifest] = []
        page = {"limit": str(PAGE_SIZE)} | (
            {"labelSelector": resource.label} if resource.label else {}
        )
        while True:
            answer = await self._request(
                "GET", resource.path(namespace), query=page, lists=resource.plural
            )
            items += answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return items
            page["continue"] = token

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        try:
            return await self._request("GET", resource.path(namespace, name))
        except ClusterError as error:
            if error.code == 404 and resource.of_chart:
                raise ClusterError(
                    404, f"{error}; the chart makes it: install or upgrade the chart again"
                ) from None
            raise

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        path = resource.path(manifest["metadata"]["namespace"])
        return await self._write("POST", resource, path, manifest, strict=strict, dry_run=dry_run)

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        path = resource.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return await self._write("PUT", resource, path, manifest, strict=strict, dry_run=dry_run)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        body: Change
        if isinstance(change, Mapping):
            body, content_type = {"metadata": {"resourceVersion": version}, **change}, MERGE_PATCH
        else:
            checked = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
            body, content_type = [checked, *change], JSON_PATCH
        path = resource.path(namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._write("PATCH", resource, path, body, content_type=content_type)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Manifest | None:
        options: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            return await self._write("DELETE", resource, resource.path(namespace, name), options)
        except ClusterError as error:
            if error.code in (404, 409):
                return None
            raise

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        spec = {"token": token, "audiences": [audience]}
        status = await self._review("authentication", "TokenReview", spec)
        user = status.get("user") or {}
        extra = user.get("extra") or {}
        parts = str(user.get("username", "")).split(":")  # system:serviceaccount:NAMESPACE:NAME
        pod_names = extra.get("authentication.kubernetes.io/pod-name")
        uids = extra.get("authentication.kubernetes.io/pod-uid")
        is_pods = len(parts) == 4 and parts[:2] == ["system", "serviceaccount"]
        is_valid = status.get("authenticated") and audience in (status.get("audiences") or ())
        if is_valid and is_pods and pod_names and uids:
            return PodIdentity(parts[2], pod_names[0], uids[0])
        return None

    async def review_user(self, token: str) -> Manifest | None:
        # Without an audience it is the API server's own.
        status = await self._review("authentication", "TokenReview", {"token": token})
        return (status.get("user") or {}) if status.get("authenticated") is True else None

    async def review_read(self, user: Manifest, path: str) -> bool:
        who = {
            "user": user.get("username"),
            **{name: user[name] for name in ("uid", "groups", "extra") if user.get(name)},
        }
        spec = {**who, "nonResourceAttributes": {"path": path, "verb": "get"}}
        status = await self._review("authorization", "SubjectAccessReview", spec)
        return status.get("allowed") is True

    async def _review(self, group: str, kind: str, spec: Manifest) -> Manifest:
        version = f"{group}.k8s.io/v1"
        review = {"apiVersion": version, "kind": kind, "spec": spec}
        answer = await self._request("POST", f"/apis/{version}/{kind.lower()}s", review)
        return answer.get("status") or {}

    async def get_token_keys(self) -> TokenKeys:
        issuer, keys = await asyncio.gather(
            self._request("GET", "/.well-known/openid-configuration"),
            self._request("GET", "/openid/v1/jwks", accept="application/jwk-set+json"),
        )
        return TokenKeys(str(issuer.get("issuer")), keys)

    async def _write(
        self,
        method: str,
        resource: Resource,
        path: str,
        body: Change,
        *,
        content_type: str = "application/json",
        strict: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        query: dict[str, str] = {}
        timeout = REQUEST_TIMEOUT_SECONDS
        if strict:
            query["fieldValidation"] = "Strict"
        if dry_run:
            query["dryRun"] = "All"
        if not resource.of_chart:
            query["timeout"] = f"{ADMISSION_TIMEOUT_SECONDS}s"
            timeout = WRITE_TIMEOUT_SECONDS
        return await self._request(
            method, path, body, query=query, content_type=content_type, timeout_seconds=timeout
        )

    async def _request(
        self,
        method: str,
        path: str,
        body: Change | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
        lists: str = "",
    ) -> dict[str, Any]:
        pairs = "&".join(f"{name}={quote(value)}" for name, value in (query or {}).items())
        found: Any = None
        text = b""
        try:
            _, url, sent_headers, _, _ = await self._api.param_serialize(
                method,
                path,
                header_params={"Accept": accept, "Content-Type": content_type},
                query_params=[],
                auth_settings=["BearerToken"],
            )
            answer = await self._api.call_api(
                method,
                f"{url}?{pairs}" if pairs else url,
                sent_headers,
                body=body,
                _request_timeout=timeout_seconds,
            )
            self.server_clock.note(answer.headers.get("Date", ""))
            good = 200 <= answer.status < 300
            if good and lists:
                found = await read_list(answer.response.content.iter_any(), reducer(lists))
            else:
                text = await answer.read()  # type: ignore[no-untyped-call]
                found = json.loads(text) if good else None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self._on_answer(method, 0)
            self.answering_since = None
            raise ClusterError(
                0, f"no answer from the API server: {error or type(error).__name__}"
            ) from error
        except (ValueError, RecursionError) as error:
            text = str(getattr(error, "doc", error)).encode(errors="replace")
        self._on_answer(method, answer.status)
        if self.answering_since is None:
            self.answering_since = time.monotonic()
        if not good:
            raise error_of_answer(answer.status, text, answer.headers.get("Retry-After", ""))
        if not isinstance(found, dict):  # a proxy's page, for instance
            raise ClusterError(
                answer.status,
                f"the answer is no object: {text[:MAX_QUOTED].decode(errors='replace')}",
            )
        return found


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
