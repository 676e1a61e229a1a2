"""Kueue on the cluster for as long as its tests run, and a queue for each."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from measure.kind_cluster import REPORTS, read_example

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.kueue.workloads import Queue, apply, kueue_object, owner_reference
from tests.e2e.other_controllers import installed
from tests.e2e.release import restored, upgrade
from tests.paths import ROOT

HIGH_PRIORITY = 1000
QUEUE_SECONDS = 240.0  # for what needs pods that end, and others that start

MakeQueue = Callable[..., Queue]
StartQueued = Callable[..., JobUnderTest]
Owner = dict[str, Any]  # an owner reference


@pytest.fixture(scope="session", autouse=True)
def kueue() -> Iterator[None]:
    """Kueue, removed at the end: without it its webhooks would let no pod be created."""
    with installed("kueue"):
        yield


@pytest.fixture
def queues() -> Iterator[list[Queue]]:
    """The queues of a test, removed after its namespace: none goes while it has quota in use."""
    made: list[Queue] = []
    yield made
    for queue in made:
        queue.remove()


@pytest.fixture
def make_queue(
    request: pytest.FixtureRequest, queues: list[Queue], namespace: str
) -> Iterator[MakeQueue]:
    """Makes a queue for the test's namespace; keeps the Workloads in it if the test has failed."""
    failed_before = request.session.testsfailed

    def make(workers: int, **options: Any) -> Queue:
        queue = Queue(f"e2e-{os.urandom(3).hex()}", namespace, workers, **options)
        queues.append(queue)
        queue.create()
        return queue

    yield make
    if request.session.testsfailed > failed_before:
        (REPORTS / namespace).mkdir(parents=True, exist_ok=True)
        found = run_kubectl(
            "-n", namespace, "get", "workloads.v1beta2.kueue.x-k8s.io", "-o", "yaml", check=False
        )
        (REPORTS / namespace / "workloads.yaml").write_text(found.stdout)


@pytest.fixture
def owner(start_job: StartJob) -> Owner:
    """A reference to a suspended job, for Workloads that the test makes itself."""
    return owner_reference(start_job(suspend=True).get())


@pytest.fixture(scope="session")
def operator_with_queues(kueue: None) -> Iterator[None]:
    with restored():
        upgrade("kueue.enabled=true")
        yield


@pytest.fixture
def start_queued(namespace: str) -> StartQueued:
    """Applies a job whose script uses the training library, with the label of a queue."""

    def start(
        name: str,
        replicas: int,
        min_replicas: int,
        *,
        queue: str = "training",
        priority: str | None = None,
        steps: int = 100_000,
        memory: str = "64Mi",
        job_annotations: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        pod: dict[str, Any] | None = None,
        **spec: Any,
    ) -> JobUnderTest:
        manifest = read_example(ROOT / "examples" / "all-reduce" / "elastic.yaml")
        labels = {"kueue.x-k8s.io/queue-name": queue}
        if priority is not None:
            labels["kueue.x-k8s.io/priority-class"] = priority
        manifest["metadata"] = {
            "name": name,
            "labels": labels,
            "annotations": job_annotations or {},
        }
        manifest["spec"] |= {
            "replicas": replicas,
            "minReplicas": min_replicas,
            "maxReplicas": replicas,
            **spec,
        }
        if annotations is not None:
            manifest["spec"]["template"]["metadata"] = {"annotations": annotations}
        manifest["spec"]["template"]["spec"] |= pod or {}
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        script = "/examples/all-reduce/train_elastic.py"
        container["args"] = [
            script,
            "--checkpoint-dir",
            "/checkpoints",
            "--width",
            "64",
            "--steps",
            str(steps),
        ]
        container["resources"] = {"requests": {"cpu": "100m", "memory": memory}}
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
        return JobUnderTest(name, namespace)

    return start


@pytest.fixture
def high_priority() -> Iterator[str]:
    name = f"e2e-{os.urandom(3).hex()}"
    described = {"value": HIGH_PRIORITY, "description": "of jobs that evict others"}
    apply(kueue_object("WorkloadPriorityClass", {"name": name}) | described)
    yield name
    run_kubectl("delete", "workloadpriorityclasses.kueue.x-k8s.io", name)
