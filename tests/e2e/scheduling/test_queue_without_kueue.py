"""A job that names a queue, on an operator that does not ask Kueue for quota."""

import pytest

from tests.e2e.job_under_test import StartJob

pytestmark = pytest.mark.e2e


def test_job_is_not_started_outside_its_queue_and_says_what_to_do(start_job: StartJob) -> None:
    job = start_job(suspend=True)
    job.kubectl("label", "epj", job.name, "kueue.x-k8s.io/queue-name=training")
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
    job.until(lambda _: job.condition("Running").get("reason") == "KueueDisabled", "the reason", 60)
    assert (
        "set kueue.enabled in the operator's chart, or remove the label"
        in job.condition("Running")["message"]
    )
    assert not job.pods()
    job.kubectl("label", "epj", job.name, "kueue.x-k8s.io/queue-name-")
    job.until_world(3, 180)
