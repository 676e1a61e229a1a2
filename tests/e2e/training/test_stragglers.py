"""One of three workers is slow: the status and an event name it and its node."""

import pytest

from tests.e2e.job_under_test import StartJob
from tests.paths import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SCRIPT = (ROOT / "tests" / "worker_image" / "scripts" / "uneven.py").read_text()


def test_slow_rank_is_named(start_job: StartJob) -> None:
    job = start_job(script=SCRIPT, replicas=3, minReplicas=3)
    status = job.until(lambda status: bool(status.get("stragglers")), "a slow rank", 240)
    slow = status["stragglers"][0]
    [pod] = [pod for pod in job.pods() if pod["metadata"]["name"] == slow["worker"]]
    assert pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"] == "1"
    assert slow["node"] == pod["spec"]["nodeName"]
    job.until_event("Straggler", slow["worker"])
