"""One of three workers is slow: the status and an event name it and its node, and another one takes its place if the job asks for it."""

import json
import time

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.e2e.kind_nodes import worker_node_without_the_operator
from tests.e2e.scheduling.test_announced_ends import steps, until_steps
from tests.paths import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

SCRIPTS = ROOT / "tests" / "worker_image" / "scripts"
SCRIPT, UNEVEN_ELASTIC = ((SCRIPTS / name).read_text() for name in ("uneven.py", "uneven_elastic.py"))


def notes(job: JobUnderTest, reason: str) -> list[str]:
    events = json.loads(job.kubectl("get", "events", "--field-selector", f"reason={reason}", "-o", "json"))
    return [str(event["message"]) for event in events["items"]]


def test_slow_rank_is_named(start_job: StartJob) -> None:
    job = start_job(script=SCRIPT, replicas=3, minReplicas=3)
    status = job.until(lambda status: bool(status.get("stragglers")), "a slow rank", 240)
    slow = status["stragglers"][0]
    [pod] = [pod for pod in job.pods() if pod["metadata"]["name"] == slow["worker"]]
    assert pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"] == "1"
    assert slow["node"] == pod["spec"]["nodeName"]
    until(
        lambda: any(slow["worker"] in note for note in notes(job, "Straggler")),
        lambda: f"an event that names {slow['worker']}: {notes(job, 'Straggler')}",
    )


def test_worker_of_a_slow_node_is_replaced_once_and_no_step_is_missing(start_job: StartJob) -> None:
    policy = {"replaceStragglers": {"slowdownPercent": 100, "afterSeconds": 30}}
    job = start_job(file="elastic.yaml", script=UNEVEN_ELASTIC, replicas=3, minReplicas=3, maxReplicas=3, resizePolicy=policy)
    job.until_world(3)
    leader = job.members()[0]
    job.until_stepping(leader, 3)
    node, leaving = worker_node_without_the_operator(job)
    job.kubectl("exec", leaving, "-c", "pytorch", "--", "touch", "/tmp/slow")
    job.until(lambda _: leaving not in job.members() and job.status["worldSize"] == 3, "another in its place", 240)
    found = until_steps(job, leader, len(steps(job, leader)) + 100)
    numbers = [number for number, _ in found]
    assert numbers == list(range(1, len(numbers) + 1)), "each step was computed once"
    assert {world for _, world in found} == {3}, "no worker was missing"
    status = job.status
    assert (status["round"], status["failures"], status["totalFailures"]) == (2, 0, 0)
    assert status["recentInterruptions"][-1]["cause"] == "WorkerLeaving"
    assert all(worker["node"] != node for worker in status["workers"] if worker["state"] == "Running")
    [note] = notes(job, "SlowWorker")
    assert f"{leaving} leaves node {node}, where it works" in note
    time.sleep(30)  # with the steps before, longer than afterSeconds: nothing is to happen
    assert job.status["round"] == 2
    assert not notes(job, "StragglerKept")
