"""What a client asks of a cluster: an interface. Works on plain dicts, as the API has them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from elastic_pytorch_client import names

Object = dict[str, Any]

# Then the API server ends a watch, and the next one begins: a dead connection is noticed within
# this time.
WATCH_SECONDS = 60


class ClusterReader(Protocol):
    """What those ask of a cluster who only look at jobs. All methods raise EpjError.

    Attributes:
        namespace: the one that is meant if none is given.
    """

    namespace: str

    def get_job(self, namespace: str, name: str) -> Object:
        """Returns a job."""
        ...

    def list_jobs(self, namespace: str | None) -> list[Object]:
        """Returns the jobs of a namespace; None: of all namespaces."""
        ...

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = WATCH_SECONDS
    ) -> Iterator[tuple[str, Object]]:
        """Yields each job as ADDED, and then each change, until the API server ends the watch.

        Args:
            namespace: the namespace; None: all.
            name: the name of the only job to watch; None: all jobs.
            seconds: the time after which the watch ends.
        """
        ...

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        """Returns the pods of a job; only those of some indexes, if any are given."""
        ...

    def list_nodes(self) -> list[Object]:
        """Returns all nodes."""
        ...

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
        """Yields the lines of the training container's log, each with its RFC 3339 timestamp in front.

        Args:
            namespace: the namespace of the pod.
            pod: the name of the pod.
            follow: whether to go on until the container ends.
            tail_lines: the number of last lines; None: all.
            since: a time in RFC 3339, to the second: only lines that are not older.
        """
        ...


class Cluster(ClusterReader, Protocol):
    """What the plugin and the SDK ask of a cluster. All methods raise EpjError.

    Attributes:
        context: the context of the kubeconfig, if others of it mean other clusters; else empty.
    """

    context: str

    def list_jobs(self, namespace: str | None, selector: str = "") -> list[Object]:
        """Returns the jobs of a namespace with the labels that a selector names; None: of all namespaces."""
        ...

    def create_job(self, namespace: str, manifest: Mapping[str, Any]) -> Object:
        """Creates a job."""
        ...

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Changes a job by a JSON merge patch."""
        ...

    def scale_job(self, namespace: str, name: str, replicas: int) -> None:
        """Sets `spec.replicas` by the scale subresource, as `kubectl scale` does: that may be allowed where editing is not.

        Args:
            namespace: the namespace of the job.
            name: the name of the job.
            replicas: the number, from minReplicas to maxReplicas.
        """
        ...

    def delete_job(self, namespace: str, name: str) -> None:
        """Deletes a job, and with it all that it owns."""
        ...

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """Runs a command in a container, as `kubectl exec` does; returns what it has written to stdout.

        Raises:
            Refused: it has ended with another exit code than 0; the message has what it has written
                to stderr.
        """
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
