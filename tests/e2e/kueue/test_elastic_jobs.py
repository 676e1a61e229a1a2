"""Elastic jobs that share a queue of a real Kueue: they take what is free, and give single workers back."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kubernetes import config, watch
from kubernetes.client import CoreV1Api

from tests.e2e.job_under_test import KUBECONFIG, JobUnderTest, read_example, run_kubectl
from tests.e2e.kueue.conftest import MakeQueue
from tests.e2e.kueue.workloads import apply, kueue_object, until
from tests.e2e.release import restored, upgrade
from tests.paths import ROOT

pytestmark = pytest.mark.long

HIGH = "e2e-high"
WORKERS = 6
SECONDS = 240.0

StartQueued = Callable[..., JobUnderTest]


@pytest.fixture(scope="module", autouse=True)
def operator_with_queues(kueue: None) -> Iterator[None]:
    """An operator that asks Kueue for quota."""
    with restored():
        upgrade("kueue.enabled=true")
        yield


@pytest.fixture
def start_queued(namespace: str) -> StartQueued:
    """Applies a job whose script uses the training library, with the label of a queue."""

    def start(name: str, replicas: int, min_replicas: int, *, priority: str | None = None) -> JobUnderTest:
        manifest = read_example(ROOT / "examples" / "all-reduce" / "elastic.yaml")
        labels = {"kueue.x-k8s.io/queue-name": "training"}
        if priority is not None:
            labels["kueue.x-k8s.io/priority-class"] = priority
        manifest["metadata"] = {"name": name, "labels": labels}
        manifest["spec"] |= {"replicas": replicas, "minReplicas": min_replicas, "maxReplicas": replicas}
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        container["args"] = ["/examples/all-reduce/train_elastic.py", "--checkpoint-dir", "/checkpoints", "--width", "64"]
        container["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
        return JobUnderTest(name, namespace)

    return start


@pytest.fixture
def high_priority() -> Iterator[str]:
    priority = {"value": 1000, "description": "of jobs that evict others"}
    apply(kueue_object("WorkloadPriorityClass", {"name": HIGH}) | priority)
    yield HIGH
    run_kubectl("delete", "workloadpriorityclasses.kueue.x-k8s.io", HIGH)


class PodCount:
    """Counts the pods of a namespace that have not ended, and keeps the most there have been at one time."""

    def __init__(self, namespace: str) -> None:
        self.most = 0
        self._core = CoreV1Api(config.new_client_from_config(str(KUBECONFIG)))
        self._watch = watch.Watch()
        self._thread = threading.Thread(target=self._count, args=(namespace,), daemon=True)

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
        self._watch.stop()


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


def test_a_job_gives_workers_back_to_another_and_takes_them_again(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    make_queue(WORKERS)
    with PodCount(namespace) as pods:
        clock = Clock()
        a = start_queued("a", WORKERS, 2)
        a.until_world(WORKERS, SECONDS)
        leader = a.members()[0]
        a.until_stepping(leader, WORKERS, SECONDS)
        clock.tell("a job takes all 6 workers of the queue, from its creation to a step")
        before = a.status["round"]

        b = start_queued("b", 4, 2)
        b.until_world(2, SECONDS)
        clock.tell("another one starts with its 2, from its creation to its round")
        status = a.until_world(4, SECONDS)
        assert status["round"] == before + 1, "both leave in one round"
        a.until_stepping(leader, 4, SECONDS)
        b.until_stepping(b.members()[0], 2, SECONDS)
    assert pods.most <= WORKERS, "quota is given back when its pods are gone"
    assert a.members()[0] == leader
    assert all(starts(a, pod) == 1 for pod in a.members())
    assert in_order(steps(a, leader)), "no step is lost"

    clock = Clock()
    b.kubectl("delete", "epj", "b")
    a.until_world(WORKERS, SECONDS)
    clock.tell("the first takes them again, from the other's deletion to its round")
    a.until_stepping(leader, WORKERS, SECONDS)
    assert starts(a, leader) == 1
    assert in_order(steps(a, leader)), "no step is lost"
    assert a.status["failures"] == 0


def in_order(numbers: list[int]) -> bool:
    """Whether each step was computed once."""
    return numbers == list(range(1, len(numbers) + 1))


def test_an_evicted_job_saves_and_goes_on_from_its_step(
    make_queue: MakeQueue, start_queued: StartQueued, high_priority: str, namespace: str
) -> None:
    make_queue(WORKERS)
    a = start_queued("a", WORKERS, 2)
    a.until_world(WORKERS, SECONDS)
    leader = a.members()[0]
    a.until_stepping(leader, WORKERS, SECONDS)
    last = 0

    with PodCount(namespace) as pods:
        clock = Clock()
        high = start_queued("high", WORKERS, WORKERS, priority=high_priority)
        end = time.monotonic() + SECONDS
        while a.pods():
            last = max([last, *steps(a, leader)])
            assert time.monotonic() < end, a.status
            time.sleep(0.1)
        clock.tell("a job of higher priority takes all: from its creation until the other's pods are gone")
        high.until_world(WORKERS, SECONDS)
        clock.tell("then to its round")
    assert pods.most <= WORKERS, "quota is given back when its pods are gone"
    assert a.status["failures"] == 0

    clock = Clock()
    high.kubectl("delete", "epj", "high")
    until(lambda: len(a.members()) == WORKERS, lambda: f"the evicted job to run again: {a.status}", SECONDS)
    clock.tell("the evicted job runs again, from the deletion of the other to its round")
    leader = a.members()[0]
    a.until_stepping(leader, WORKERS, SECONDS)
    assert steps(a, leader)[0] > last > 1, "the last step was on disk before the pods were gone"
    assert a.status["failures"] == 0
