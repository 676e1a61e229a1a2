"""Kueue on the cluster for as long as its tests run, and a queue for each."""

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.job_under_test import REPORTS, StartJob, run_kubectl
from tests.e2e.kueue.workloads import Queue, owner_reference
from tests.paths import ROOT

SCRIPT = ROOT / "hack" / "kueue.sh"
UNAVAILABLE = 3  # hack/kueue.sh's exit status where there is neither Kueue's module nor its source

MakeQueue = Callable[..., Queue]


@pytest.fixture(scope="session", autouse=True)
def kueue() -> Iterator[None]:
    """Kueue, removed at the end: without it its webhooks would let no pod be created."""
    installed = subprocess.run([SCRIPT], check=False)
    if installed.returncode == UNAVAILABLE:
        pytest.skip("Kueue cannot be had here; what hack/kueue.sh says above tells why")
    try:
        installed.check_returncode()
        yield
    finally:
        subprocess.run([SCRIPT, "remove"], check=True)


@pytest.fixture
def queues() -> Iterator[list[Queue]]:
    """The queues of a test, removed after its namespace: Kueue keeps a queue for as long as something in it has quota."""
    made: list[Queue] = []
    yield made
    for queue in made:
        queue.remove()


@pytest.fixture
def make_queue(request: pytest.FixtureRequest, queues: list[Queue], namespace: str) -> Iterator[MakeQueue]:
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
        found = run_kubectl("-n", namespace, "get", "workloads.v1beta2.kueue.x-k8s.io", "-o", "yaml", check=False)
        (REPORTS / namespace / "workloads.yaml").write_text(found.stdout)


@pytest.fixture
def owner(start_job: StartJob) -> dict[str, Any]:
    """A reference to a suspended job, for Workloads that the test makes itself."""
    return owner_reference(start_job(suspend=True).get())
