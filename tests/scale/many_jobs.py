"""Many jobs on fake nodes, the operator that keeps their pods, and how long it takes to replace one."""

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kubernetes.client import AppsV1Api, CoordinationV1Api, CoreV1Api, CustomObjectsApi
from scale.fake_nodes import delete_pod_at_once
from scale.stage import job_manifest

T = TypeVar("T")
JOBS = 100
WORKERS = 10  # of each job
JOB_RESOURCE = {"group": "elasticpytorch.dev", "version": "v1alpha1", "plural": "elasticpytorchjobs"}
OPERATOR = "elastic-pytorch-operator"
OPERATOR_NAMESPACE = "elastic-pytorch-system"
CREATION_SECONDS = 300.0
OPERATORS_SECONDS = 120.0
REPLACEMENT_SECONDS = 400.0  # longer than between two lists of everything, which mend what a watch has missed


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """A worker pod.

    Attributes:
        name: of the pod.
        job: that it belongs to.
        index: among the job's workers.
    """

    name: str
    job: str
    index: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker's pod that was deleted after the leader, in seconds.

    Attributes:
        deleted: since the leader's deletion.
        replaced: from the pod's own deletion until there was another one in its place.
    """

    deleted: float
    replaced: float


@dataclass(frozen=True, slots=True)
class Turn:
    """What followed the deletion of the leader.

    Attributes:
        takeover: seconds until another one led.
        losses: the workers that were lost meanwhile.
    """

    takeover: float
    losses: tuple[Loss, ...]


def wait_for(look: Callable[[], T | None], seconds: float, what: str) -> T:
    until = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < until, f"waited {seconds:.0f} s for {what}"
        time.sleep(1)
    return found


class ManyJobs:
    """Jobs in one namespace, all of the same size."""

    def __init__(self, core: CoreV1Api, namespace: str) -> None:
        self._core = core
        self._objects = CustomObjectsApi(core.api_client)
        self._apps = AppsV1Api(core.api_client)
        self._namespace = namespace

    def create(self) -> None:
        for number in range(JOBS):
            self._objects.create_namespaced_custom_object(
                **JOB_RESOURCE, namespace=self._namespace, body=job_manifest(f"job-{number}", WORKERS)
            )

    def remove(self) -> None:
        self._objects.delete_collection_namespaced_custom_object(**JOB_RESOURCE, namespace=self._namespace)

    def whole(self, seconds: float) -> set[Worker]:
        """Waits until each job has exactly its workers, each on a node; returns them."""
        return wait_for(self._whole, seconds, f"{JOBS} jobs of exactly {WORKERS} pods each")

    def _whole(self) -> set[Worker] | None:
        wanted = sorted((f"job-{number}", index) for number in range(JOBS) for index in range(WORKERS))
        pods = self._pods(self._namespace, "elasticpytorch.dev/role=worker")
        workers = {worker_of(pod) for pod in pods if placed(pod)}
        return workers if sorted((worker.job, worker.index) for worker in workers) == wanted else None

    def _workers(self, jobs: Collection[str]) -> list[Worker]:
        """The pods of some jobs, in whatever state."""
        pods = self._pods(self._namespace, f"elasticpytorch.dev/job-name in ({','.join(jobs)})") if jobs else []
        return [worker_of(pod) for pod in pods]

    def operators_ready(self) -> str:
        """Waits until both replicas of the operator are ready, and one leads; returns its pod's name."""

        def look() -> str | None:
            deployment = self._apps.read_namespaced_deployment(OPERATOR, OPERATOR_NAMESPACE)
            ready = deployment.status.ready_replicas == deployment.spec.replicas
            leaders = self._leaders()
            return leaders[0] if ready and len(leaders) == 1 else None

        return wait_for(look, OPERATORS_SECONDS, "the operator's replicas to be ready and one of them to lead")

    def take_turn(self, leader: str, victims: Mapping[Worker, float]) -> Turn:
        """Deletes the leading operator's pod, then workers' pods, and waits until all are replaced.

        Args:
            leader: the operator's pod.
            victims: the workers, and how many seconds after the leader each is to be deleted.
        """
        deleted: dict[Worker, float] = {}
        replaced: dict[Worker, float] = {}
        takeover = None
        began = time.monotonic()
        delete_pod_at_once(self._core, OPERATOR_NAMESPACE, leader)
        while takeover is None or len(replaced) < len(victims):
            now = time.monotonic() - began
            assert now < REPLACEMENT_SECONDS, f"after {now:.0f} s not replaced: {victims.keys() - replaced.keys()}"
            if takeover is None and any(name != leader for name in self._leaders()):
                takeover = now
            for victim in [victim for victim, moment in victims.items() if victim not in deleted and moment <= now]:
                deleted[victim] = time.monotonic() - began
                delete_pod_at_once(self._core, self._namespace, victim.name)
            present = {
                (worker.job, worker.index): worker.name
                for worker in self._workers({v.job for v in deleted.keys() - replaced.keys()})
            }
            now = time.monotonic() - began
            for victim in deleted.keys() - replaced.keys():
                if present.get((victim.job, victim.index), victim.name) != victim.name:
                    replaced[victim] = now - deleted[victim]
            time.sleep(0.05)
        return Turn(takeover, tuple(Loss(deleted[victim], replaced[victim]) for victim in victims))

    def _leaders(self) -> list[str]:
        lease = CoordinationV1Api(self._core.api_client).read_namespaced_lease(OPERATOR, OPERATOR_NAMESPACE)
        pods = {pod["metadata"]["name"] for pod in self._pods(OPERATOR_NAMESPACE, f"app.kubernetes.io/name={OPERATOR}")}
        return [lease.spec.holder_identity] if lease.spec.holder_identity in pods else []

    def _pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """As plain JSON: a thousand objects of the client's take seconds of the machine's time."""
        answer = self._core.list_namespaced_pod(namespace, label_selector=selector, _preload_content=False)
        found: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return found


def placed(pod: dict[str, Any]) -> bool:
    return "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]


def worker_of(pod: dict[str, Any]) -> Worker:
    labels = pod["metadata"]["labels"]
    return Worker(
        pod["metadata"]["name"], labels["elasticpytorch.dev/job-name"], int(labels["elasticpytorch.dev/worker-index"])
    )
