"""A real cluster: the API server, through the official client."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from elastic_pytorch_client import names
from elastic_pytorch_client.cluster.interface import WATCH_SECONDS, Object, training_container
from elastic_pytorch_client.cluster.kubeconfig import (
    CANNOT_USE,
    Access,
    Headers,
    NoContext,
    impersonate,
    read_kubeconfig,
)
from elastic_pytorch_client.errors import (
    EpjError,
    NotAllowed,
    Refused,
    Unreachable,
    error_of,
    error_of_exec,
    one_line,
    reason_of,
)

PAGE_SIZE = 500
REQUEST_SECONDS = 30
JOBS = f"/apis/{names.API_VERSION}"
MAX_LINE_BYTES = 8 << 20  # more than any object of the API server has
KEPT_BYTES = 1 << 20  # of both ends of a longer line: its time, and its newest output


class KubernetesCluster:
    """A Kubernetes cluster, through the official client. It has the methods of `Cluster`."""

    def __init__(self, api: Any, namespace: str, context: str, impersonation: Headers) -> None:
        self._api, self._impersonation = api, impersonation
        self.namespace, self.context = namespace, context

    @classmethod
    def connect(cls, access: Access | None = None) -> "KubernetesCluster":
        """Connects to kubectl's cluster, or in a pod without a kubeconfig to the pod's.

        Raises:
            Unreachable: the kubeconfig cannot be used, or there is none, and no ServiceAccount.
        """
        # Imported late: it takes half a second, which `kubectl epj --help` need not wait for.
        from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
        from kubernetes.config import (  # noqa: PLC0415
            ConfigException,
            load_incluster_config,
            load_kube_config_from_dict,
        )

        access = access or Access()
        configuration = Configuration()
        context = ""
        try:
            chosen = read_kubeconfig(access, os.environ)
            load_kube_config_from_dict(chosen.config, client_configuration=configuration)  # type: ignore[no-untyped-call]
            namespace, impersonation = chosen.namespace, chosen.impersonation
            context = chosen.context if chosen.is_one_of_several else ""
        except (ConfigException, OSError) as error:
            raise Unreachable(f"{CANNOT_USE}: {one_line(error)}") from error
        except NoContext as nothing:
            if access.kubeconfig:
                raise
            try:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                namespace, impersonation = _own_namespace(), impersonate(access, {})
            except ConfigException:
                raise nothing from None
        configuration.retries = False
        place = access.namespace or namespace or "default"
        return cls(ApiClient(configuration), place, context, impersonation)

    def get_job(self, namespace: str, name: str) -> Object:
        return self._request("GET", _job_path(namespace, name), job=(namespace, name))

    def list_jobs(self, namespace: str | None, selector: str = "") -> list[Object]:
        return self._list(_job_path(namespace), **({"labelSelector": selector} if selector else {}))

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = WATCH_SECONDS
    ) -> Iterator[tuple[str, Object]]:
        query = {"watch": "true", "timeoutSeconds": str(seconds)}
        if name is not None:
            query["fieldSelector"] = f"metadata.name={name}"
        for line in self._lines(_job_path(namespace), query, read_seconds=seconds + 15):
            change = json.loads(line)
            if change["type"] == "ERROR":
                return
            yield change["type"], change["object"]

    def create_job(self, namespace: str, manifest: Mapping[str, Any]) -> Object:
        return self._request("POST", _job_path(namespace), manifest)

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        return self._request("PATCH", _job_path(namespace, name), patch, job=(namespace, name))

    def scale_job(self, namespace: str, name: str, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        self._request("PATCH", f"{_job_path(namespace, name)}/scale", body, job=(namespace, name))

    def delete_job(self, namespace: str, name: str) -> None:
        path, body = _job_path(namespace, name), {"propagationPolicy": "Background"}
        self._request("DELETE", path, body, job=(namespace, name))

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        selector = f"{names.LABEL_JOB_NAME}={job}"
        if indexes:
            selector += f",{names.LABEL_WORKER_INDEX} in ({','.join(map(str, sorted(indexes)))})"
        return self._list(f"/api/v1/namespaces/{quote(namespace)}/pods", labelSelector=selector)

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        from kubernetes.stream import ws_client  # noqa: PLC0415  late, as the client itself

        if self._impersonation:  # the official client's websocket leaves such headers out
            acts = "only `kubectl exec` can run a command in a pod as another user (--as)"
            raise NotAllowed(f"no command was run in pod {pod}: {acts}")
        query = [("command", word) for word in command]
        query += [("container", container), ("stdout", "true"), ("stderr", "true")]
        path = f"{_pod_path(namespace, pod)}/exec?{urlencode(query)}"
        try:
            _, url, headers, _, _ = self._api.param_serialize(
                "GET", path, header_params={}, auth_settings=["BearerToken"]
            )
            lower = {name.lower(): value for name, value in headers.items()}
            connect: Any = ws_client.websocket_call
            client = connect(
                self._api.configuration, "GET", url, headers=lower, _preload_content=False
            )
            client.run_forever(timeout=REQUEST_SECONDS)
            output, errors = client.read_stdout(timeout=0), client.read_stderr(timeout=0)
            code = client.returncode
            client.close()
        except Exception as error:
            raise error_of_exec(error, namespace, pod) from error
        if code != 0:
            ended = f"the command in pod {pod} has ended with exit code {code}"
            raise Refused(f"{ended}: {one_line(errors)}")
        return str(output)

    def list_nodes(self) -> list[Object]:
        return self._list("/api/v1/nodes")

    def list_events(self, namespace: str, kind: str, name: str) -> list[Object]:
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        return self._list(f"/api/v1/namespaces/{quote(namespace)}/events", fieldSelector=selector)

    def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        found = self._request("GET", _pod_path(namespace, pod))
        query = {"timestamps": "true", "container": training_container(found)}
        query |= {"follow": "true"} if follow else {}
        query |= {"tailLines": str(tail_lines)} if tail_lines is not None else {}
        query |= {"sinceTime": since} if since else {}
        read_seconds = None if follow else REQUEST_SECONDS
        path = f"{_pod_path(namespace, pod)}/log"
        yield from self._lines(path, query, read_seconds=read_seconds)

    def _list(self, path: str, **query: str) -> list[Object]:
        items: list[Object] = []
        page = {"limit": str(PAGE_SIZE)}
        while True:
            answer = self._request("GET", f"{path}?{urlencode({**query, **page})}")
            items += answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return items
            page["continue"] = token

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        job: tuple[str, str] | None = None,
    ) -> Object:
        response = self._open(method, path, body, (10, REQUEST_SECONDS), job)
        try:
            found = json.loads(response.read())
        except Exception as error:
            raise Unreachable(f"the API server's answer broke off: {one_line(error)}") from error
        assert isinstance(found, dict)  # the API server answers with objects
        return found

    def _lines(
        self, path: str, query: Mapping[str, str], *, read_seconds: float | None
    ) -> Iterator[str]:
        """A stream's lines; a broken connection ends it."""
        import urllib3  # noqa: PLC0415  late, with the client

        address, timeout = f"{path}?{urlencode(query)}", (10, read_seconds)
        response = self._open("GET", address, None, timeout, None).response
        lines = LineCutter()
        try:
            for chunk in response.stream(65536, decode_content=True):
                yield from lines.take(chunk)
            if rest := lines.take_rest():
                yield rest
        except (urllib3.exceptions.HTTPError, OSError):
            return
        finally:
            response.close()

    def _open(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout: tuple[float, float | None],
        job: tuple[str, str] | None,
    ) -> Any:
        """Sends a request; returns the unread response, if it is a good one."""
        import urllib3  # noqa: PLC0415  late, with the client

        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        try:
            _, url, headers, _, _ = self._api.param_serialize(
                method, path, header_params=headers, query_params=[], auth_settings=["BearerToken"]
            )
            sent = urllib3.HTTPHeaderDict(headers)  # repeats a group's header, as no dict can
            for name, value in self._impersonation:
                sent.add(name, value.encode().decode("latin-1"))  # which http.client encodes back
            response = self._api.call_api(method, url, sent, body=body, _request_timeout=timeout)
            if not 200 <= response.status < 300:
                raise error_of(response.status, response.read(), job)
        except EpjError:
            raise
        except Exception as error:  # each of the client's layers has its own kinds
            raise Unreachable(f"no answer from the API server: {reason_of(error)}") from error
        return response


class LineCutter:
    """Cuts a stream into lines, without the middle of a very long line."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> list[str]:
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self.take_rest())
        self._add(rest)
        return lines

    def take_rest(self) -> str:
        line = self._rest.decode(errors="replace")
        self._rest.clear()
        return line

    def _add(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > MAX_LINE_BYTES:
            del self._rest[KEPT_BYTES:-KEPT_BYTES]


def _job_path(namespace: str | None, name: str = "") -> str:
    place = f"/namespaces/{quote(namespace)}" if namespace is not None else ""
    return f"{JOBS}{place}/{names.PLURAL}" + (f"/{quote(name)}" if name else "")


def _pod_path(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}"


def _own_namespace() -> str:
    try:
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
    except OSError:
        return "default"
