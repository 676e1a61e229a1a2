"""Jobs whose pods use the network of their nodes, as RDMA often asks for."""

import pytest

from tests.e2e.job_under_test import StartJob

pytestmark = pytest.mark.e2e

SHORT = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "30"]


@pytest.mark.long
def test_agents_on_the_hosts_network_find_the_operator_and_each_other(start_job: StartJob) -> None:
    job = start_job(args=SHORT, change_pod=lambda pod: pod.update(hostNetwork=True))
    job.until_world(3, 120)
    status = job.until(lambda status: status["state"] in ("Complete", "Failed"), "the end", 120)
    assert (status["state"], status["failures"]) == ("Complete", 0)
    assert all(pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in job.pods())
