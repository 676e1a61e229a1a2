"""A job as an object, for notebooks, pipelines and tests."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elastic_pytorch_client.cluster import Cluster, KubernetesCluster
from elastic_pytorch_client.errors import JobFailed, NoSuchJob, TimedOut
from elastic_pytorch_client.manifest import build_manifest, read_manifest
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.timeline import JobEvent, read_events
from elastic_pytorch_client.watch import Clock, follow_job, trains_whole, until_ended, wait_for_job
from elastic_pytorch_client.worker_logs import Choice, Line, follow_logs, read_logs

DELETE_SECONDS = 60.0


class Job:
    """An ElasticPyTorchJob on a cluster. Every method may raise an EpjError."""

    def __init__(
        self, name: str, namespace: str, cluster: Cluster, *, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.cluster = cluster
        self._clock = clock or Clock()

    def __repr__(self) -> str:
        return f"Job({self.name!r}, namespace={self.namespace!r})"

    @classmethod
    def create(
        cls,
        source: Mapping[str, Any] | str | Path | None = None,
        *,
        namespace: str | None = None,
        cluster: Cluster | None = None,
        **wanted: Any,
    ) -> "Job":
        """Creates a job.

        Args:
            source: its manifest: a dict, YAML text, or the Path of a file. None: it is built from
                `wanted`.
            namespace: the namespace; None: the manifest's, or else the context's.
            cluster: the cluster; None: the one of the kubeconfig, or of the pod that this runs in.
            wanted: the arguments of `build_manifest`: `name`, `image`, `args`, `replicas`, …

        Raises:
            Refused: the API server does not accept it, or has one of that name.
        """
        cluster = cluster or KubernetesCluster.connect()
        manifest = read_manifest(source) if source is not None else build_manifest(**wanted)
        place = namespace or (manifest.get("metadata") or {}).get("namespace") or cluster.namespace
        made = cluster.create_job(place, manifest)
        return cls(str(made["metadata"]["name"]), place, cluster)

    @classmethod
    def get(
        cls, name: str, *, namespace: str | None = None, cluster: Cluster | None = None
    ) -> "Job":
        """Returns an existing job.

        Raises:
            NoSuchJob: there is none of that name.
        """
        cluster = cluster or KubernetesCluster.connect()
        job = cls(name, namespace or cluster.namespace, cluster)
        cluster.get_job(job.namespace, name)
        return job

    @classmethod
    def list_all(
        cls, *, namespace: str | None = None, cluster: Cluster | None = None
    ) -> list["Job"]:
        """Returns the jobs of a namespace."""
        cluster = cluster or KubernetesCluster.connect()
        place = namespace or cluster.namespace
        found = cluster.list_jobs(place)
        return [cls(str(job["metadata"]["name"]), place, cluster) for job in found]

    @property
    def manifest(self) -> dict[str, Any]:
        """The job as the API has it now."""
        return self.cluster.get_job(self.namespace, self.name)

    @property
    def status(self) -> JobView:
        """The job's spec and status, parsed."""
        return view_job(self.manifest)

    def scale(
        self, replicas: int, *, wait: bool = False, timeout_seconds: float | None = None
    ) -> None:
        """Changes the number of workers, to one from minReplicas to maxReplicas.

        With `wait`, waits until all of them train.
        """
        self.cluster.scale_job(self.namespace, self.name, replicas)
        if wait:
            self.wait_until_whole(timeout_seconds=timeout_seconds)

    def suspend(self) -> None:
        """Lets the workers save and stop; the job stays."""
        self.cluster.patch_job(self.namespace, self.name, {"spec": {"suspend": True}})

    def resume(self) -> None:
        """Lets a suspended job continue from its checkpoint."""
        self.cluster.patch_job(self.namespace, self.name, {"spec": {"suspend": False}})

    def delete(self, *, wait: bool = False, timeout_seconds: float = DELETE_SECONDS) -> None:
        """Deletes the job and all that it owns; a job that is gone is no error.

        With `wait`, waits until it is gone; its pods may take their grace period.
        """
        try:
            self.cluster.delete_job(self.namespace, self.name)
            if not wait:
                return
            for _ in self._follow(timeout_seconds):
                pass
            self.cluster.get_job(self.namespace, self.name)
        except NoSuchJob:
            return
        raise TimedOut(f"{self.name} still exists {timeout_seconds:.0f} s after it was deleted")

    def progress(self, *, timeout_seconds: float | None = None) -> Iterator[JobView]:
        """Yields the job now, and after each change of spec or status, until its end or deletion.

        Broken connections are opened again; changes that come in between are reported as one.
        """
        return until_ended(self._follow(timeout_seconds))

    def wait(self, *, timeout_seconds: float | None = None) -> JobView:
        """Waits until the job is complete.

        Raises:
            JobFailed: it has failed or was deleted.
            TimedOut: it has not ended in time.
        """
        view = self._wait_for(lambda view: view.ended, "it had ended", timeout_seconds)
        failed = view.condition("Failed")
        if failed is not None and failed.true:
            why = f"{self.name} has failed, {failed.reason}: {failed.message}"
            raise JobFailed(why, failed.reason)
        return view

    def wait_until_whole(self, *, timeout_seconds: float | None = None) -> JobView:
        """Waits until all wanted workers train.

        Raises:
            JobFailed: the job has ended first.
            TimedOut: they do not train in time.
        """
        return self._wait_for(trains_whole, "all its workers trained", timeout_seconds)

    def logs(self, *, rank: int | None = None, tail_lines: int | None = None) -> Iterator[Line]:
        """Yields the log lines of the workers whose pods still exist.

        Args:
            rank: only the worker that has this rank now; None: all workers, one after the other.
            tail_lines: the number of last lines of each log; None: all.
        """
        choice = Choice(frozenset() if rank is None else frozenset({rank}))
        return read_logs(self.cluster, self.status, choice, tail_lines=tail_lines)

    def follow_logs(self, *, rank: int | None = None) -> Iterator[Line]:
        """Yields the workers' log lines as they come, across replaced pods, until the job ends.

        Args:
            rank: only the worker that has this rank at the time; None: all workers.
        """
        choice = Choice(frozenset() if rank is None else frozenset({rank}))
        return follow_logs(self.cluster, self.namespace, self.name, choice)

    def timeline(self) -> list[JobEvent]:
        """Returns the job's events, oldest first, as long as the cluster keeps them (an hour).

        Each has `at`, `reason`, `note` and `warning`, and what its annotations say: `round`,
        `workers`, `cause`, `seconds`, `steps_lost`.
        """
        found = self.cluster.list_events(self.namespace, "ElasticPyTorchJob", self.name)
        return read_events(found, self.status.uid)

    def _follow(self, timeout_seconds: float | None) -> Iterator[JobView]:
        place = (self.cluster, self.namespace, self.name)
        return follow_job(*place, timeout_seconds=timeout_seconds, clock=self._clock)

    def _wait_for(
        self, fulfilled: Callable[[JobView], bool], what: str, timeout_seconds: float | None
    ) -> JobView:
        place, clock = (self.cluster, self.namespace, self.name), self._clock
        return wait_for_job(*place, fulfilled, what, timeout_seconds=timeout_seconds, clock=clock)
