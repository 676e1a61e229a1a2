"""The interface of a cluster, with plain dicts as in the API."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from elastic_pytorch_client import names

Object = dict[str, Any]

# The API server ends a watch after this time, and the next one notices a dead connection.
WATCH_SECONDS = 60


class ClusterReader(Protocol):
    """The requests of those who only read jobs. All methods raise EpjError.

    Attributes:
        namespace: the default one.
    """

    namespace: str

    def get_job(self, namespace: str, name: str) -> Object: ...

    def list_jobs(self, namespace: str | None) -> list[Object]:
        """Returns the jobs of a namespace; None: of all namespaces."""
        ...

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = WATCH_SECONDS
    ) -> Iterator[tuple[str, Object]]:
        """Yields each job as ADDED, then each change, until the API server ends the watch."""
        ...

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        """Returns the pods of a job; only those of some indexes, if any are given."""
        ...

    def list_nodes(self) -> list[Object]: ...

    def list_events(self, namespace: str, kind: str, name: str) -> list[Object]:
        """Returns the events about an object (v1), in no order."""
        ...

    def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        """Yields the lines of the training container's log, each behind its RFC 3339 timestamp.

        `since` is a time in RFC 3339, to the second: only lines that are not older come.
        """
        ...


class Cluster(ClusterReader, Protocol):
    """The requests of the plugin and the SDK. All methods raise EpjError.

    Attributes:
        context: the context of the kubeconfig, if others of it mean other clusters; else empty.
    """

    context: str

    def list_jobs(self, namespace: str | None, selector: str = "") -> list[Object]:
        """Returns the jobs of a namespace, None: of all, with the labels of a selector."""
        ...

    def create_job(self, namespace: str, manifest: Mapping[str, Any]) -> Object: ...

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Changes a job by a JSON merge patch."""
        ...

    def scale_job(self, namespace: str, name: str, replicas: int) -> None:
        """Sets `spec.replicas` by the scale subresource, which users may change without `spec`."""
        ...

    def delete_job(self, namespace: str, name: str) -> None: ...

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """Runs a command in a container, as `kubectl exec` does; returns its stdout.

        Raises:
            Refused: its exit code is not 0; the message has its stderr.
        """
        ...


def is_running(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def training_container(pod: Mapping[str, Any]) -> str:
    """The training container of a worker pod: the operator's choice, `pytorch`, or the first."""
    annotations = pod["metadata"].get("annotations") or {}
    if chosen := annotations.get(names.ANNOTATION_TRAINING_CONTAINER):
        return str(chosen)
    containers = [str(c["name"]) for c in pod["spec"]["containers"]]
    return names.TRAINING_CONTAINER if names.TRAINING_CONTAINER in containers else containers[0]
