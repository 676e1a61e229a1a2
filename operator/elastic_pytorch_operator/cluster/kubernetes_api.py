"""The real cluster, through the official client's asyncio side. Works on plain dicts: its models cost 65 us a pod and buy nothing here."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config

from elastic_pytorch_operator.api import gang_schedulers, kueue, names
from elastic_pytorch_operator.api.list_reader import read_list
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.clocks import ServerClock
from elastic_pytorch_operator.cluster.interface import (
    MAX_QUOTED,
    ClusterError,
    PodIdentity,
    RequestObserver,
    TokenKeys,
    WorkloadPart,
    error_of_answer,
)
from elastic_pytorch_operator.model.reduced_objects import reducer

PAGE_SIZE = 250
REQUEST_TIMEOUT_SECONDS = 15
# Of a write that webhooks may hold up, each for up to 30 s. In a request that ends before its webhook does, the API server answers 504
# without naming the webhook, and passes over none whose failurePolicy is Ignore (measured: API server 1.34). By itself it waits for 34 s.
ADMISSION_TIMEOUT_SECONDS = 32
WRITE_TIMEOUT_SECONDS = 35
MAX_CONNECTIONS = 200  # writes, reviews of tokens and lists together: the lease is not renewed behind them
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
KUEUE_PATH = f"/apis/{kueue.API_VERSION}"
JOBS_PATH = f"/apis/{names.API_VERSION}"

Body = Manifest | Sequence[Manifest]


class KubernetesCluster:
    """The Cluster behind an API server.

    Args:
        namespaces: none: all.
    """

    def __init__(self, api: client.ApiClient, observer: RequestObserver, namespaces: Sequence[str] = ()) -> None:
        self._api = api
        self.namespaces = namespaces
        self._observer = observer
        self._answering_since: float | None = None
        self.server_clock = ServerClock()

    @property
    def answering_since(self) -> float | None:
        """Since when the API server has answered every request, monotonic seconds; None: it did not answer the last one."""
        return self._answering_since

    @classmethod
    async def connect(cls, observer: RequestObserver, namespaces: Sequence[str] = ()) -> "KubernetesCluster":
        """Connects as the pod's ServiceAccount, or outside a pod as the kubeconfig says."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls.over(configuration, observer, namespaces)

    @classmethod
    def over(
        cls, configuration: client.Configuration, observer: RequestObserver, namespaces: Sequence[str] = ()
    ) -> "KubernetesCluster":
        """Connects as a configuration says, through the proxy that the environment names, if any."""
        configuration.connection_pool_maxsize = MAX_CONNECTIONS
        # By itself, aiohttp asks the environment and ~/.netrc again for each request, in two threads: that was 40 % of its cost.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
        return cls(client.ApiClient(configuration), observer, namespaces)

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def list_jobs(self, namespace: str = "") -> list[Manifest]:
        return await self._list(f"{JOBS_PATH}{_place(namespace)}/{names.PLURAL}")

    async def list_pods(self, namespace: str = "") -> list[Manifest]:
        return await self._list(f"/api/v1{_place(namespace)}/pods", labelSelector=names.LABEL_ROLE)

    async def list_nodes(self) -> list[Manifest]:
        return await self._list("/api/v1/nodes")

    async def get_service(self, namespace: str, name: str) -> Manifest:
        return await self._request("GET", f"/api/v1/namespaces/{namespace}/services/{name}")

    async def create_service(self, manifest: Manifest) -> Manifest:
        return await self._write("POST", f"/api/v1/namespaces/{manifest['metadata']['namespace']}/services", manifest)

    async def get_claim(self, namespace: str, name: str) -> Manifest:
        return await self._request("GET", f"{_claims(namespace)}/{name}")

    async def create_claim(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        path = _claims(manifest["metadata"]["namespace"])
        return await self._write("POST", path, manifest, **_creation(strict=True, dry_run=dry_run))

    async def get_pod_group(self, api_version: str, namespace: str, name: str) -> Manifest | None:
        return await self._find(f"{_pod_groups(api_version, namespace)}/{name}")

    async def put_pod_group(self, manifest: Manifest, *, dry_run: bool = False) -> None:
        path = _pod_groups(manifest["apiVersion"], manifest["metadata"]["namespace"])
        await self._write(*_target(path, manifest), manifest, **_creation(strict=True, dry_run=dry_run))

    async def delete_pod_group(self, api_version: str, namespace: str, name: str, uid: str) -> None:
        await self._delete(f"{_pod_groups(api_version, namespace)}/{name}", {"preconditions": {"uid": uid}})

    async def create_pod(self, manifest: Manifest, *, strict: bool = False, dry_run: bool = False) -> Manifest:
        path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
        return await self._write("POST", path, manifest, **_creation(strict=strict, dry_run=dry_run))

    async def delete_pod(self, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None) -> Manifest | None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self._delete(f"/api/v1/namespaces/{namespace}/pods/{name}", options)

    async def get_template(self, name: str) -> Manifest:
        return await self._request("GET", f"{JOBS_PATH}/{names.TEMPLATE_KIND.lower()}s/{name}")

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        await self._delete(f"{JOBS_PATH}/namespaces/{namespace}/{names.PLURAL}/{name}", options)

    async def patch_job_status(self, namespace: str, name: str, status: Manifest, version: str) -> Manifest:
        path = f"{JOBS_PATH}/namespaces/{namespace}/{names.PLURAL}/{name}/status"
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        return await self._write("PATCH", path, patch, content_type=MERGE_PATCH)

    async def list_workloads(self, namespace: str = "") -> list[Manifest]:
        path = f"{KUEUE_PATH}{_place(namespace)}/{kueue.WORKLOADS}"
        try:
            return await self._list(path, labelSelector=names.LABEL_WORKLOAD_NUMBER)
        except ClusterError as error:
            if error.code == 404:
                return []
            raise

    async def create_workload(self, manifest: Manifest) -> Manifest:
        return await self._write("POST", _workloads(manifest["metadata"]["namespace"]), manifest)

    async def patch_workload(
        self, namespace: str, name: str, patch: Manifest, version: str, part: WorkloadPart = "spec"
    ) -> Manifest | None:
        body = {"metadata": {"resourceVersion": version}, part: patch}
        path = f"{_workloads(namespace)}/{name}{'/status' if part == 'status' else ''}"
        return await self._patch_workload(path, body, MERGE_PATCH)

    async def resize_workload(self, namespace: str, name: str, count: int, version: str) -> Manifest | None:
        patch: Body = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/spec/podSets/0/count", "value": count},
        ]
        return await self._patch_workload(f"{_workloads(namespace)}/{name}", patch, JSON_PATCH)

    async def _patch_workload(self, path: str, body: Body, content_type: str) -> Manifest | None:
        try:
            return await self._write("PATCH", path, body, content_type=content_type)
        except ClusterError as error:
            if error.code == 404:
                return None
            raise

    async def delete_workload(self, namespace: str, name: str, uid: str) -> None:
        await self._delete(f"{_workloads(namespace)}/{name}", {"preconditions": {"uid": uid}})

    async def get_resource_flavor(self, name: str) -> Manifest:
        return await self._request("GET", f"{KUEUE_PATH}/resourceflavors/{name}")

    async def get_workload_priority_class(self, name: str) -> Manifest:
        return await self._request("GET", f"{KUEUE_PATH}/workloadpriorityclasses/{name}")

    async def list_priority_classes(self) -> list[Manifest]:
        return await self._list("/apis/scheduling.k8s.io/v1/priorityclasses")

    async def create_event(self, manifest: Manifest) -> None:
        namespace = manifest["metadata"]["namespace"]
        await self._write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", manifest)

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        return pod_of_review(await self._review_token({"token": token, "audiences": [audience]}), audience)

    async def review_user(self, token: str) -> Manifest | None:
        status = await self._review_token({"token": token})  # without an audience it is the API server's own
        return (status.get("user") or {}) if status.get("authenticated") is True else None

    async def _review_token(self, spec: Manifest) -> Manifest:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await self._request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        return answer.get("status") or {}

    async def review_read(self, user: Manifest, path: str) -> bool:
        who = {"user": user.get("username"), **{name: user[name] for name in ("uid", "groups", "extra") if user.get(name)}}
        spec = {**who, "nonResourceAttributes": {"path": path, "verb": "get"}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return (answer.get("status") or {}).get("allowed") is True

    async def get_token_keys(self) -> TokenKeys:
        issuer, keys = await asyncio.gather(
            self._request("GET", "/.well-known/openid-configuration"),
            self._request("GET", "/openid/v1/jwks", accept="application/jwk-set+json"),
        )
        return TokenKeys(str(issuer.get("issuer")), keys)

    async def get_lease(self, namespace: str, name: str) -> Manifest:
        return await self._get_own(f"{_leases(namespace)}/{name}")

    async def put_lease(self, manifest: Manifest) -> Manifest:
        return await self._replace(_leases(manifest["metadata"]["namespace"]), manifest)

    async def get_endpoint_slice(self, namespace: str, name: str) -> Manifest:
        return await self._get_own(f"{_endpoint_slices(namespace)}/{name}")

    async def put_endpoint_slice(self, manifest: Manifest) -> Manifest:
        return await self._replace(_endpoint_slices(manifest["metadata"]["namespace"]), manifest)

    async def get_secret(self, namespace: str, name: str) -> Manifest:
        return await self._get_own(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    async def put_secret(self, manifest: Manifest) -> Manifest:
        return await self._replace(f"/api/v1/namespaces/{manifest['metadata']['namespace']}/secrets", manifest)

    async def _get_own(self, path: str) -> Manifest:
        try:
            return await self._request("GET", path)
        except ClusterError as error:
            if error.code == 404:
                raise ClusterError(404, f"{error}; the chart makes it: install or upgrade the chart again") from None
            raise

    async def _find(self, path: str) -> Manifest | None:
        try:
            return await self._request("GET", path)
        except ClusterError as error:
            if error.code == 404:
                return None
            raise

    async def _delete(self, path: str, options: Manifest) -> Manifest | None:
        try:
            return await self._write("DELETE", path, options)
        except ClusterError as error:
            if error.code in (404, 409):
                return None
            raise

    async def _write(
        self, method: str, path: str, body: Body, *, content_type: str = "application/json", **query: str
    ) -> dict[str, Any]:
        """Writes into a job's namespace: the API server asks that namespace's webhooks, and says which one is too slow."""
        query["timeout"] = f"{ADMISSION_TIMEOUT_SECONDS}s"
        timeout = WRITE_TIMEOUT_SECONDS
        return await self._request(method, path, body, query=query, content_type=content_type, timeout_seconds=timeout)

    async def _replace(self, path: str, manifest: Manifest) -> Manifest:
        return await self._request("PUT", f"{path}/{manifest['metadata']['name']}", manifest)

    async def _list(self, path: str, **query: str) -> list[Manifest]:
        items: list[Manifest] = []
        page: dict[str, str] = {"limit": str(PAGE_SIZE)}
        while True:
            answer = await self._request("GET", path, query={**query, **page}, lists=path.rpartition("/")[2])
            items += answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return items
            page["continue"] = token

    async def _request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
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
            self._observer.requested(method, 0)
            self._answering_since = None
            raise ClusterError(0, f"no answer from the API server: {error or type(error).__name__}") from error
        except (ValueError, RecursionError) as error:
            text = str(getattr(error, "doc", error)).encode(errors="replace")
        self._observer.requested(method, answer.status)
        if self._answering_since is None:
            self._answering_since = time.monotonic()
        if not good:
            raise error_of_answer(answer.status, text, answer.headers.get("Retry-After", ""))
        if not isinstance(found, dict):  # a proxy's page, for instance
            raise ClusterError(answer.status, f"the answer is no object: {text[:MAX_QUOTED].decode(errors='replace')}")
        return found


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _creation(*, strict: bool, dry_run: bool) -> dict[str, str]:
    return ({"fieldValidation": "Strict"} if strict else {}) | ({"dryRun": "All"} if dry_run else {})


def _place(namespace: str) -> str:
    return f"/namespaces/{namespace}" if namespace else ""


def _target(path: str, manifest: Manifest) -> tuple[str, str]:
    metadata = manifest["metadata"]
    return ("PUT", f"{path}/{metadata['name']}") if metadata.get("resourceVersion") else ("POST", path)


def _claims(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


def _pod_groups(api_version: str, namespace: str) -> str:
    return f"/apis/{api_version}/namespaces/{namespace}/{gang_schedulers.PLURAL}"


def _workloads(namespace: str) -> str:
    return f"{KUEUE_PATH}/namespaces/{namespace}/{kueue.WORKLOADS}"


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _endpoint_slices(namespace: str) -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def pod_of_review(status: Manifest, audience: str) -> PodIdentity | None:
    """The pod named by a TokenReview's status; None if the token is not valid for the audience, or is no pod's."""
    if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
        return None
    user = status.get("user") or {}
    extra = user.get("extra") or {}
    parts = str(user.get("username", "")).split(":")  # system:serviceaccount:NAMESPACE:NAME
    pod_names, uids = extra.get("authentication.kubernetes.io/pod-name"), extra.get("authentication.kubernetes.io/pod-uid")
    if len(parts) != 4 or parts[:2] != ["system", "serviceaccount"] or not pod_names or not uids:
        return None
    return PodIdentity(parts[2], pod_names[0], uids[0])
