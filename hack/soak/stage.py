"""The driver, observer and folder of a run, and the targets that exist right now."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from elastic_pytorch_client import names
from measure.api import ApiError
from measure.cluster import ClusterDriver, is_alive
from measure.engine import TROUBLE, Say

from soak.jobs import Sort
from soak.observe import Observer

T = TypeVar("T")
LOOK_SECONDS = 1.0


@dataclass
class Stage:
    driver: ClusterDriver
    observer: Observer
    folder: Path  # on this machine; nodes have it below /shared
    nodes: list[str]  # of workers
    sorts: Sequence[Sort]
    seconds: float  # that the jobs train, about
    say: Say

    def running_jobs(self) -> list[str]:
        return sorted(job.name for job in self.observer.jobs.values() if not job.ended)

    def workers(self) -> list[dict[str, Any]]:
        told = {line["worker"] for lines in self.observer.lines.values() for line in lines}
        found = (pod for job in self.running_jobs() for pod in self.running_pods(job))
        return sorted(
            (pod for pod in found if pod["metadata"]["name"] in told),
            key=lambda pod: (job_of(pod), int(pod["metadata"]["labels"][names.LABEL_WORKER_INDEX])),
        )

    def running_pods(self, job: str) -> list[dict[str, Any]]:
        pods = (pod for pod in self.observer.pods.values() if job_of(pod) == job)
        return [pod for pod in pods if is_alive(pod) and pod["status"].get("phase") == "Running"]

    def jobs_on(self, node: str) -> frozenset[str]:
        """The jobs that have a pod on a node; never empty, which would mean all."""
        pods = self.observer.pods.values()
        return frozenset({"", *(job_of(p) for p in pods if p["spec"].get("nodeName") == node)})


def job_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"][names.LABEL_JOB_NAME])


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks again while the API server fails, or has too much to do."""
    while True:
        try:
            return await ask()
        except ApiError as error:
            if error.status < 500 and error.status != 429:
                raise
        except TROUBLE:
            pass
        await asyncio.sleep(LOOK_SECONDS)
