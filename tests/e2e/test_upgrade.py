"""From the release before this one, under a job that trains: its workers speak HTTP, and know nothing of a leader."""

from typing import Any

import pytest
from job_under_test import JobUnderTest, StartJob, leading_operator, run_kubectl
from release import install_earlier, restored, upgrade_earlier

pytestmark = pytest.mark.e2e

BEFORE = "0.1.0"
ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]


def speaks_to(job: JobUnderTest) -> dict[str, str]:
    """By worker, where its agent was told that the operator is."""
    return {pod["metadata"]["name"]: url_in(pod) for pod in job.pods()}


def url_in(pod: dict[str, Any]) -> str:
    (url,) = [v["value"] for v in pod["spec"]["containers"][0]["env"] if v["name"] == "ELASTIC_PYTORCH_OPERATOR_URL"]
    return str(url)


def steps_with(told: list[str], world: int) -> list[int]:
    return [int(line.split()[1]) for line in told if line.startswith("STEP") and f"world={world} " in line]


def test_training_does_not_notice_an_upgrade_and_workers_from_before_stay(start_job: StartJob) -> None:
    with restored():
        install_earlier(BEFORE)
        job = start_job(args=ENDLESS, replicas=2, minReplicas=1, maxReplicas=3)
        job.until_world(2)
        before = job.members()
        job.until_stepping(before[0], 2)
        assert all(url.startswith("http:") for url in speaks_to(job).values())

        upgrade_earlier()
        leader = leading_operator()
        assert leader["spec"]["containers"][0]["image"].endswith(":dev")
        seen = steps_with(job.logs(before[0]), 2)[-1]
        job.until(lambda _: steps_with(job.logs(before[0]), 2)[-1] > seen + 30, "some seconds under the new operator")
        # Meanwhile an operator of 0.1 that nobody speaks to any more may have said that nobody trains.
        job.until(lambda status: status["worldSize"] == 2 and job.members() == before, "the group as it was")
        assert job.status["round"] == 1

        job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
        job.until_world(3)
        job.until_stepping(before[0], 3)
        assert job.members()[:2] == before
        urls = speaks_to(job)
        assert [url.split(":")[0] for worker, url in sorted(urls.items())] == ["http", "http", "https"], (
            "old and new in a round"
        )
        told = job.logs(before[0])
        assert len([line for line in told if line.startswith("INIT")]) == 2, "one round before, one after"
        alone = steps_with(told, 2)
        assert alone == list(range(alone[0], alone[0] + len(alone))), "no step was done twice"

        run_kubectl("-n", leader["metadata"]["namespace"], "delete", "pod", leader["metadata"]["name"], "--wait=false")
        leading_operator(other_than=leader["metadata"]["name"])
        job.kubectl("delete", "pod", before[1], "--wait=false")
        job.until(lambda _: before[1] not in job.members() and len(job.members()) == 3, "its place to be taken")
        assert before[0] in job.members()
        assert job.status["failures"] == 0
