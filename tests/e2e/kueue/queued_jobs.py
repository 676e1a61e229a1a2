"""What tests see of jobs in queues: their pods, their steps, and how long it takes."""

import re
import threading
import time

from kubernetes import config, watch
from kubernetes.client import CoreV1Api
from urllib3.exceptions import ProtocolError

from tests.e2e.api_requests import KUBECONFIG
from tests.e2e.job_under_test import JobUnderTest


class PodCount:
    """Keeps the most pods of a namespace that have been there, not ended, at one time."""

    def __init__(self, namespace: str) -> None:
        self.most = 0
        self._core = CoreV1Api(config.new_client_from_config(str(KUBECONFIG)))
        self._watch = watch.Watch()
        self._over = False
        self._thread = threading.Thread(target=self._follow, args=(namespace,), daemon=True)

    def _follow(self, namespace: str) -> None:
        try:
            self._count(namespace)
        except ProtocolError:  # as the connection ends when the watch is stopped
            assert self._over

    def _count(self, namespace: str) -> None:
        alive: set[str] = set()
        for event in self._watch.stream(self._core.list_namespaced_pod, namespace):
            pod = event["object"]
            ended = event["type"] == "DELETED" or pod.status.phase in {"Succeeded", "Failed"}
            (alive.discard if ended else alive.add)(pod.metadata.name)
            self.most = max(self.most, len(alive))

    def __enter__(self) -> "PodCount":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._watch.stop()
        self._thread.join(timeout=30)


def steps(job: JobUnderTest, pod: str) -> list[int]:
    """Numbers of the steps that a pod has told of as rank 0."""
    found = [re.match(r"STEP (\d+) ", line) for line in job.logs(pod)]
    return [int(m[1]) for m in found if m]


def starts(job: JobUnderTest, pod: str) -> int:
    """How often a pod's agent has started the training process."""
    return sum("workers started in" in line for line in job.logs(pod))


class Clock:
    """Prints how long each part of a story takes."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def tell(self, what: str) -> None:
        print(f"    {what}: {time.monotonic() - self._began:.1f} s", flush=True)
        self._began = time.monotonic()


def in_order(numbers: list[int]) -> bool:
    """Whether each step was computed once."""
    return numbers == list(range(1, len(numbers) + 1))
