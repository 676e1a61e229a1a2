"""A cluster with one job that reacts to what a drill does to it: each change of its group comes with a later watch."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.plugin.recorded_cluster import Object, RecordedCluster

PHASES = {"detection": "0.05", "stop": "0.40", "wait": "0.00", "start": "0.10", "init": "1.00", "firstStep": "0.20"}


def a_worker_pod(index: int, *, suffix: str = "a", job: str = "lm", uid: str = "uid-lm", node: str = "") -> Object:
    """A running worker pod, on a node of its own if none is named."""
    name = f"{job}-worker-{index}-{suffix}"
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": {"elasticpytorch.dev/job-name": "lm", "elasticpytorch.dev/worker-index": str(index)},
            "ownerReferences": [{"uid": uid}],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": node or f"node-{index}",
            "containers": [{"name": "pytorch"}],
            "terminationGracePeriodSeconds": 20,
        },
        "status": {"phase": "Running"},
    }


def a_training_job(workers: int = 3, *, minimum: int | None = 2, maximum: int | None = 4, **spec: Any) -> Object:
    """A job that trains with all its workers."""
    sizes = {"replicas": workers, "minReplicas": minimum, "maxReplicas": maximum}
    return {
        "metadata": {"name": "lm", "namespace": "team", "uid": "uid-lm", "generation": 1},
        "spec": {
            **{name: size for name, size in sizes.items() if size is not None},
            "template": {"spec": {"containers": [{"name": "pytorch"}]}},
            **spec,
        },
        "status": {
            "observedGeneration": 1,
            "round": 1,
            "progress": {"step": 120, "checkpointStep": 100},
            **trains([a_worker_pod(index) for index in range(workers)], workers),
        },
    }


def trains(pods: Sequence[Object], wanted: int) -> dict[str, Any]:
    """The status of a job that trains with the workers of some pods."""
    workers = [
        {"name": pod["metadata"]["name"], "index": rank, "rank": rank, "state": "Running"} for rank, pod in enumerate(pods)
    ]
    whole = "False" if len(pods) == wanted else "True"
    conditions = [
        {"type": "Running", "status": "True"},
        {"type": "Resizing", "status": whole},
        {"type": "Degraded", "status": whole if len(pods) < wanted else "False"},
    ]
    return {"state": "Running", "workers": workers, "worldSize": len(pods), "conditions": conditions}


class DrilledCluster(RecordedCluster):
    """The cluster.

    Args:
        workers: how many train.
        job: its manifest; None: a plain one.

    Attributes:
        recovers: whether the job recovers from what is done to it.
        phases: of each interruption.
        on_change: called after each change of the group.
    """

    def __init__(self, workers: int = 3, job: Object | None = None) -> None:
        super().__init__()
        self.recovers = True
        self.phases = dict(PHASES)
        self.on_change: Callable[[], None] = lambda: None
        self._pods = [a_worker_pod(index) for index in range(workers)]
        self._later: list[Callable[[], None]] = []
        self._made = 0
        self.put(job or a_training_job(workers))

    def watch_jobs(self, namespace: str | None, name: str | None = None, *, seconds: int = 60) -> Iterator[tuple[str, Object]]:
        if self.recovers and self._later:
            self._later.pop(0)()
            self.on_change()
        yield "ADDED", self.get_job("team", "lm")

    def run_in_pod(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        said = super().run_in_pod(namespace, pod, container, command)
        self._later.append(lambda: self._regroup("WorkerFailed"))
        return said

    def delete_pod(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> None:
        super().delete_pod(namespace, pod, uid, dry_run=dry_run)
        if not dry_run:
            self._lose(pod)

    def evict_pod(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> None:
        super().evict_pod(namespace, pod, uid, dry_run=dry_run)
        if not dry_run:
            self._lose(pod)

    def scale_job(self, namespace: str, name: str, replicas: int, *, dry_run: bool = False) -> None:
        super().scale_job(namespace, name, replicas, dry_run=dry_run)
        if not dry_run:
            self._later.append(lambda: self._resize(replicas))

    def _lose(self, name: str) -> None:
        def lose() -> None:
            self._pods = [pod for pod in self._pods if pod["metadata"]["name"] != name]
            self._regroup("WorkerLeaving")

        def replace() -> None:
            self._made += 1
            self._pods.append(a_worker_pod(len(self._pods), suffix=f"new{self._made}"))
            self._regroup("WorkerJoined")

        self._later += [lose, replace]

    def _resize(self, replicas: int) -> None:
        self._made += 1
        more = [a_worker_pod(index, suffix=f"new{self._made}") for index in range(len(self._pods), replicas)]
        self._pods = [*self._pods, *more][:replicas]
        self._regroup("WorkerJoined" if more else "ScaledDown")

    def _regroup(self, cause: str) -> None:
        job = self.get_job("team", "lm")
        status = job["status"]
        round_ = status["round"] + 1
        interruption = {
            "cause": cause,
            "seconds": f"{sum(map(float, self.phases.values())):.2f}",
            "stepsLost": 3,
            "phaseSeconds": self.phases,
            "round": round_,
        }
        status |= trains(self._pods, job["spec"]["replicas"])
        status |= {"observedGeneration": job["metadata"]["generation"], "round": round_}
        status |= {"interruptions": status.get("interruptions", 0) + 1}
        status["history"] = [*status.get("history", []), interruption][-8:]
        self.put(json.loads(json.dumps(job)))
