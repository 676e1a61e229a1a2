"""What a client asks of a cluster: an interface. Works on plain dicts, as the API has them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from elastic_pytorch_client import names

Object = dict[str, Any]

WATCH_SECONDS = 60  # then the API server ends a watch, and the next one begins: a dead connection is noticed within this time


class ClusterReader(Protocol):
    """What those ask of a cluster who only look at jobs. All methods raise EpjError.

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
    ) -> Iterator[str]:
        """The lines of the training container's log, each with its RFC 3339 timestamp in front.

        Args:
            namespace: of the pod.
            pod: its name.
            follow: go on until the container ends.
            tail_lines: of the end only; None: all.
            since: RFC 3339: only what is not older, to the second.
        """
        ...


class Cluster(ClusterReader, Protocol):
    """What the plugin and the SDK ask of a cluster. All methods raise EpjError."""

    def create_job(self, namespace: str, manifest: Mapping[str, Any]) -> Object:
        """Creates a job."""
        ...

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Changes a job by a JSON merge patch."""
        ...

    def scale_job(self, namespace: str, name: str, replicas: int, *, dry_run: bool = False) -> None:
        """Sets `spec.replicas` by the scale subresource, as `kubectl scale` does: that may be allowed where editing is not.

        Args:
            namespace: of the job.
            name: of the job.
            replicas: from minReplicas to maxReplicas.
            dry_run: the API server checks everything, permissions too, and changes nothing.
        """
        ...

    def delete_job(self, namespace: str, name: str) -> None:
        """Deletes a job, and with it all that it owns."""
        ...

    def delete_pod(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> None:
        """Deletes a pod with its grace period, if it still has the UID."""
        ...

    def evict_pod(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> None:
        """Evicts a pod as `kubectl drain` does, if it still has the UID and PodDisruptionBudgets allow it."""
        ...

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """Runs a command in a container, as `kubectl exec` does; returns what it has written to stdout.

        Raises:
            Refused: it has ended with another exit code than 0; the message has what it has written to stderr.
        """
        ...

    def may(self, verb: str, resource: str, namespace: str, name: str = "") -> bool:
        """Whether the user has a permission on an object of the core API, such as `pods/exec`; empty name: on any."""
        ...

    def get_node(self, name: str) -> Object:
        """A node."""
        ...

    def cordon_node(self, name: str, *, cordoned: bool, dry_run: bool = False) -> None:
        """Has a node take no more pods, or take them again."""
        ...


def is_running(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's containers have started, and have not all ended."""
    return (pod.get("status") or {}).get("phase") == "Running"


def training_container(pod: Mapping[str, Any]) -> str:
    """The container of a worker pod that trains: what the operator has written, else `pytorch`, or the first."""
    if told := (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRAINING_CONTAINER):
        return str(told)
    containers = [str(c["name"]) for c in pod["spec"]["containers"]]
    return names.TRAINING_CONTAINER if names.TRAINING_CONTAINER in containers else containers[0]
