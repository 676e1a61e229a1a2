"""A hundred jobs on fake nodes, made once, and removed also when the run is interrupted."""

import signal
import time
from collections.abc import Iterator

import pytest
from kubernetes import config
from kubernetes.client import ApiException, CoreV1Api
from scale.fake_nodes import KUBECONFIG, fake_nodes

from tests.scale.many_jobs import CREATION_SECONDS, JOBS, WORKERS, ManyJobs, wait_for

NODES = 10
TURNS = 10
NAMESPACE = "scale"
REMOVAL_SECONDS = 300.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turns", type=int, default=TURNS, help="how often the leader is deleted (default: %(default)s)")


@pytest.fixture
def turns(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("--turns", TURNS)
    return found


@pytest.fixture
def jobs() -> Iterator[ManyJobs]:
    """Jobs whose pods are all there."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends the run lets it clean up
    core = CoreV1Api(config.new_client_from_config(str(KUBECONFIG)))
    remove_namespace(core)  # an earlier run that was killed may have left it
    with fake_nodes(core, NODES):
        core.create_namespace({"metadata": {"name": NAMESPACE}})
        jobs = ManyJobs(core, NAMESPACE)
        try:
            began = time.monotonic()
            jobs.operators_ready()
            jobs.create()
            print(f"\n{JOBS} jobs of {WORKERS} pods each: applied in {time.monotonic() - began:.1f} s", flush=True)
            jobs.whole(CREATION_SECONDS)
            print(f"all pods are made and placed after {time.monotonic() - began:.1f} s", flush=True)
            yield jobs
        finally:
            print("Remove the jobs and the fake nodes", flush=True)
            jobs.remove()
            remove_namespace(core)


def remove_namespace(core: CoreV1Api) -> None:
    """Returns when nothing of it is left."""

    def gone() -> bool | None:
        try:
            core.delete_namespace(NAMESPACE)
        except ApiException as error:
            if error.status == 404:
                return True
            if error.status != 409:  # it is being removed
                raise
        return None

    wait_for(gone, REMOVAL_SECONDS, f"namespace {NAMESPACE} to be gone")
