"""What faults are made to, and the targets that there are right now."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.nodes import Nodes
from elastic_pytorch_client import names
from measure.api import Api, pods_path
from measure.commands import Commands
from measure.kind_cluster import OPERATOR_NAMESPACE, OPERATORS
from measure.watcher import leading_pod

from soak.observe import Observer

T = TypeVar("T")
Effect = Callable[[], Awaitable[object]]


class NoTarget(Exception):
    """Nothing is there that the fault could be made to."""


@dataclass(frozen=True, slots=True)
class Target:
    """A fault that is about to be made.

    Attributes:
        what: is done to what.
        do: makes it.
        undo: takes it back; None: nothing is to be taken back.
        jobs: that it is done to; empty: all.
        pods: that are to end.
        node: that it is done to.
    """

    what: str
    do: Effect
    undo: Effect | None = None
    jobs: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    node: str = ""


@dataclass
class Stage:
    """The cluster, and what is known of it."""

    api: Api
    commands: Commands
    observer: Observer
    namespace: str
    folder: Path  # on this machine; all nodes have it below /shared
    worker_nodes: list[str]
    control_plane: str

    @property
    def nodes(self) -> Nodes:
        """The nodes, and what can be done to them."""
        return Nodes(self.api, self.commands)

    def running_jobs(self, *, library: bool = False) -> list[str]:
        """The jobs that have not ended, of all or of the training library, by name."""
        jobs = [job for job in self.observer.jobs.values() if not job.ended]
        return sorted(job.name for job in jobs if not library or job.name in self.library_jobs())

    def library_jobs(self) -> set[str]:
        """The jobs whose steps have a generation: those of the training library."""
        return {job for job, lines in self.observer.lines.items() if lines and "generation" in lines[0]}

    def workers(self) -> list[dict[str, Any]]:
        """The pods that train, by job and index."""
        told = {line["worker"] for lines in self.observer.lines.values() for line in lines}
        jobs = set(self.running_jobs())
        found = [
            pod
            for name, pod in self.observer.pods.items()
            if name in told
            and pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
            and job_of(pod) in jobs
        ]
        return sorted(found, key=lambda pod: (job_of(pod), int(pod["metadata"]["labels"][names.LABEL_WORKER_INDEX])))

    def jobs_on(self, node: str) -> frozenset[str]:
        """The jobs that have a pod on a node; never empty, as that would be all."""
        return frozenset({"", *(job_of(pod) for pod in self.observer.pods.values() if pod["spec"].get("nodeName") == node)})

    async def operators(self) -> list[dict[str, Any]]:
        """The operators' pods that run, the leader first."""
        found = (await self.api.ask("GET", f"{pods_path(OPERATOR_NAMESPACE)}?labelSelector={OPERATORS}"))["items"]
        running = [pod for pod in found if any(s.get("containerID") for s in pod["status"].get("containerStatuses") or ())]
        leader = await leading_pod(self.api)
        return sorted(running, key=lambda pod: (pod["metadata"]["name"] != leader, pod["metadata"]["name"]))

    async def kill_pod_process(self, pod: dict[str, Any]) -> None:
        """Kills all processes of a pod's training container, or of its only one, without Kubernetes."""
        states = pod["status"]["containerStatuses"]
        [status] = [s for s in states if s["name"] == names.TRAINING_CONTAINER or len(states) == 1]
        await self.nodes.kill_container(pod["spec"]["nodeName"], status["containerID"].partition("://")[2])

    async def in_control_plane(self, command: str) -> None:
        """Runs a shell command in the node of the control plane."""
        await self.commands.docker("exec", self.control_plane, "sh", "-c", command)


def job_of(pod: dict[str, Any]) -> str:
    """The job that a pod belongs to."""
    return str(pod["metadata"]["labels"][names.LABEL_JOB_NAME])


def pick(number: int, candidates: list[T], what: str) -> T:
    """The candidate that a random number chooses.

    Raises:
        NoTarget: there is none.
    """
    if not candidates:
        raise NoTarget(f"there is no {what}")
    return candidates[number % len(candidates)]
