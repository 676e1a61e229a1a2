"""All that a client asks of the API server: an interface, and the real one. Works on plain dicts, as the API has them."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from elastic_pytorch_client import names
from elastic_pytorch_client.errors import EpjError, NoJobKind, NoSuchJob, NotAllowed, NotFound, Refused, Unreachable

Object = dict[str, Any]

PAGE_SIZE = 500
REQUEST_SECONDS = 30
WATCH_SECONDS = 60  # then the API server ends a watch, and the next one begins: a dead connection is noticed within this time
INVALID_VALUE = re.compile(r"^Invalid value: [^:]*: ")  # the API server puts it before the sentence of a rule
JOBS = f"/apis/{names.API_VERSION}"


class Cluster(Protocol):
    """What the plugin and the SDK ask of a cluster. All methods raise EpjError.

    Attributes:
        namespace: the one that is meant if none is given.
    """

    namespace: str

    def get_job(self, namespace: str, name: str) -> Object:
        """A job."""
        ...

    def list_jobs(self, namespace: str | None) -> list[Object]:
        """The jobs of a namespace; None: of all."""
        ...

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = WATCH_SECONDS
    ) -> Iterator[tuple[str, Object]]:
        """What there is, as ADDED, then each change, until the API server ends it.

        Args:
            namespace: None: all.
            name: of the only job to watch.
            seconds: after which it ends.
        """
        ...

    def create_job(self, namespace: str, manifest: Mapping[str, Any]) -> Object:
        """Creates a job."""
        ...

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Changes a job by a JSON merge patch."""
        ...

    def scale_job(self, namespace: str, name: str, replicas: int) -> None:
        """Sets `spec.replicas` by the scale subresource, as `kubectl scale` does: that may be allowed where editing is not."""
        ...

    def delete_job(self, namespace: str, name: str) -> None:
        """Deletes a job, and with it all that it owns."""
        ...

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        """The pods of a job; only those of some indexes, if any are given."""
        ...

    def list_nodes(self) -> list[Object]:
        """All nodes."""
        ...

    def list_events(self, namespace: str, kind: str, name: str) -> list[Object]:
        """The events about an object (v1), in no order."""
        ...

    def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: str | None = None,
        limit_bytes: int | None = None,
    ) -> Iterator[str]:
        """The lines of the training container's log, each with its RFC 3339 timestamp in front.

        Args:
            namespace: of the pod.
            pod: its name.
            follow: go on until the container ends.
            tail_lines: of the end only; None: all.
            since: RFC 3339: only what is not older, to the second.
            limit_bytes: no more than this.
        """
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """Which cluster, as kubectl's own options say it.

    Attributes:
        kubeconfig: a file; empty: $KUBECONFIG or ~/.kube/config.
        context: of the kubeconfig; empty: its current one.
        namespace: empty: the context's.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


class KubernetesCluster:
    """A Cluster that is one, through the official client."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    @classmethod
    def connect(cls, access: Access | None = None) -> "KubernetesCluster":
        """Connects as a kubeconfig says, or in a pod without one as its ServiceAccount.

        Raises:
            Unreachable: neither is there.
        """
        # Imported late: it takes half a second, which `kubectl epj --help` need not wait for.
        from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
        from kubernetes.config import (  # noqa: PLC0415
            ConfigException,
            list_kube_config_contexts,
            load_incluster_config,
            load_kube_config,
        )

        access = access or Access()
        # The client reads the variable when it is imported; here it may be set later, in a notebook say.
        file, context = access.kubeconfig or os.environ.get("KUBECONFIG") or None, access.context or None
        configuration = Configuration()
        namespace = "default"
        try:
            load_kube_config(file, context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]
            contexts, current = list_kube_config_contexts(file)  # type: ignore[no-untyped-call]
            chosen = next((c for c in contexts if c["name"] == context), current)
            namespace = (chosen.get("context") or {}).get("namespace") or namespace
        except (ConfigException, OSError) as error:
            if access.kubeconfig or context:
                raise Unreachable(f"cannot use the kubeconfig: {_one_line(error)}") from error
            try:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                namespace = _own_namespace()
            except ConfigException:
                raise Unreachable(f"no cluster is configured: {_one_line(error)}") from error
        configuration.retries = False
        return cls(ApiClient(configuration), access.namespace or namespace)

    def get_job(self, namespace: str, name: str) -> Object:
        return self._request("GET", _job_path(namespace, name), job=(namespace, name))

    def list_jobs(self, namespace: str | None) -> list[Object]:
        return self._list(_job_path(namespace))

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
        self._request("DELETE", _job_path(namespace, name), {"propagationPolicy": "Background"}, job=(namespace, name))

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        selector = f"{names.LABEL_JOB_NAME}={job}"
        if indexes:
            selector += f",{names.LABEL_WORKER_INDEX} in ({','.join(map(str, sorted(indexes)))})"
        return self._list(f"/api/v1/namespaces/{quote(namespace)}/pods", labelSelector=selector)

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
        limit_bytes: int | None = None,
    ) -> Iterator[str]:
        found = self._request("GET", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}")
        query = {"timestamps": "true", "container": training_container(found)}
        query |= {"follow": "true"} if follow else {}
        query |= {"tailLines": str(tail_lines)} if tail_lines is not None else {}
        query |= {"sinceTime": since} if since else {}
        query |= {"limitBytes": str(limit_bytes)} if limit_bytes else {}
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        yield from self._lines(path, query, read_seconds=None if follow else REQUEST_SECONDS)

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
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, job: tuple[str, str] | None = None
    ) -> Object:
        response = self._open(method, path, body, (10, REQUEST_SECONDS), job)
        try:
            found = json.loads(response.read())
        except Exception as error:
            raise Unreachable(f"the API server's answer broke off: {_one_line(error)}") from error
        assert isinstance(found, dict)  # the API server answers with objects
        return found

    def _lines(self, path: str, query: Mapping[str, str], *, read_seconds: float | None) -> Iterator[str]:
        """A stream's lines; a connection that breaks ends it."""
        import urllib3  # noqa: PLC0415  with the client, late

        response = self._open("GET", f"{path}?{urlencode(query)}", None, (10, read_seconds), None).response
        rest = b""
        try:
            for chunk in response.stream(65536, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            if rest:
                yield rest.decode(errors="replace")
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
        """Sends a request; returns the response, unread, if it is a good one."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        try:
            _, url, headers, _, _ = self._api.param_serialize(
                method, path, header_params=headers, query_params=[], auth_settings=["BearerToken"]
            )
            response = self._api.call_api(method, url, headers, body=body, _request_timeout=timeout)
        except Exception as error:  # the client has as many kinds as it has layers; none is worth a stack trace here
            if isinstance(error, EpjError):
                raise
            raise Unreachable(f"no answer from the API server: {_reason_of(error)}") from error
        if 200 <= response.status < 300:
            return response
        raise error_of(response.status, response.read(), job)


def error_of(code: int, answer: bytes, job: tuple[str, str] | None = None) -> EpjError:
    """What an answer of the API server means.

    Args:
        code: its HTTP status.
        answer: its body.
        job: the namespace and name that were asked for, if a job was.
    """
    try:
        status = json.loads(answer)
        message, details = str(status["message"]), status.get("details") or {}
    except (ValueError, KeyError, TypeError):
        message, details = answer[:300].decode(errors="replace").strip(), {}
    match code:
        case 404 if job is not None and details.get("name"):
            namespace, name = job
            return NoSuchJob(
                f'there is no ElasticPyTorchJob "{name}" in namespace "{namespace}"; `kubectl epj list -A` shows all'
            )
        case 404 if not details.get("name"):
            return NoJobKind(
                "this cluster does not have the kind ElasticPyTorchJob: install the chart elastic-pytorch-operator"
            )
        case 404:
            return NotFound(message)
        case 401:
            return NotAllowed("the API server does not accept your credentials: they may have expired")
        case 403:
            return NotAllowed(_one_line(message))
        case 422 if causes := details.get("causes"):
            return Refused("; ".join(_cause(cause) for cause in causes))
        case 400 | 409 | 422:
            return Refused(_one_line(message))
        case _:
            return Unreachable(f"the API server answers {code}: {_one_line(message)}")


def _cause(cause: Mapping[str, Any]) -> str:
    """The field and the sentence of one cause of a refusal, without the value that was sent."""
    message = INVALID_VALUE.sub("", _one_line(cause.get("message", "")))
    field = str(cause.get("field", ""))
    return f"{field}: {message}" if field and field != "<nil>" else message


def training_container(pod: Mapping[str, Any]) -> str:
    """The container of a worker pod that trains: what the operator has written, else `pytorch`, or the first."""
    if told := (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRAINING_CONTAINER):
        return str(told)
    containers = [str(c["name"]) for c in pod["spec"]["containers"]]
    return names.TRAINING_CONTAINER if names.TRAINING_CONTAINER in containers else containers[0]


def _job_path(namespace: str | None, name: str = "") -> str:
    place = f"/namespaces/{quote(namespace)}" if namespace is not None else ""
    return f"{JOBS}{place}/{names.PLURAL}" + (f"/{quote(name)}" if name else "")


def _own_namespace() -> str:
    try:
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
    except OSError:
        return "default"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _reason_of(error: BaseException) -> str:
    """The innermost reason of a connection error: the outer ones quote objects."""
    while (inner := getattr(error, "reason", None)) is not None and isinstance(inner, BaseException):
        error = inner
    text = _one_line(error)
    return text.rpartition(": ")[2] if text.startswith(("<", "HTTP")) and ": " in text else text
