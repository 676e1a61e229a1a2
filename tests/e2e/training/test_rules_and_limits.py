"""`failurePolicy.rules`, `failurePolicy.backoffLimit` and `resizePolicy.minSecondsBetweenGrowths` on a real cluster."""

import json
from datetime import datetime
from typing import Any

import pytest
from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.job_under_test import JobUnderTest, StartJob, leading_operator, members_of, run_kubectl

pytestmark = pytest.mark.e2e

PAUSE_SECONDS = 40
GROUP_RESTARTS = "elasticpytorch.dev/group-restarts"

# Trains until a test asks the process of a pod to exit with a code.
SCRIPT = """
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

asked = Path("/tmp/exit-code")
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
while True:
    dist.all_reduce(torch.ones(1))
    if asked.exists():
        code = int(asked.read_text())
        asked.unlink()
        sys.exit(code)
    time.sleep(0.1)
"""


def on_codes(action: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(values)}}


def exit_with(job: JobUnderTest, pod: str, code: int) -> None:
    ask = f"echo {code} > /tmp/exit-code.new && mv /tmp/exit-code.new /tmp/exit-code"
    job.kubectl("exec", pod, "-c", "pytorch", "--", "sh", "-c", ask)


def evict(job: JobUnderTest, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": job.namespace}}
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    run_kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))


def start(start_job: StartJob, *rules: dict[str, Any], **policy: Any) -> JobUnderTest:
    job = start_job(script=SCRIPT, failurePolicy={"maxFailures": 0, **policy, "rules": list(rules)})
    job.until_world(3)
    return job


def until_failed(job: JobUnderTest, reason: str) -> str:
    """Waits for the job's failure; returns the message of its condition."""
    job.until(lambda status: status.get("state") == "Failed", "the failure", 60)
    condition = job.condition("Failed")
    assert condition["reason"] == reason
    return str(condition["message"])


@pytest.mark.long
def test_ignored_exit_code_does_not_count(start_job: StartJob) -> None:
    job = start(start_job, on_codes("Ignore", 42), backoffLimit=0)
    members = job.members()
    exit_with(job, members[2], 42)
    job.until(lambda status: status["round"] > 1 and status["worldSize"] == 3, "the next round", 60)
    job.until_event("FailureIgnored")
    status = job.status
    assert (status["failures"], status["totalFailures"], sorted(job.members())) == (0, 0, sorted(members))
    exit_with(job, members[2], 43)
    until_failed(job, "TooManyFailures")


@pytest.mark.parametrize("operator_is_lost", [False, pytest.param(True, marks=[pytest.mark.serial, pytest.mark.long])])
def test_exit_code_restarts_the_group_in_fresh_pods_once(start_job: StartJob, operator_is_lost: bool) -> None:
    job = start(start_job, on_codes("RestartGroup", 42))
    before = set(job.members())
    leader = leading_operator()["metadata"]["name"]
    exit_with(job, job.members()[0], 42)
    job.until(lambda status: status.get("groupRestarts") == 1, "the restart", 60)
    if operator_is_lost:
        run_kubectl("-n", OPERATOR_NAMESPACE, "delete", "pod", leader, "--wait=false")
        leading_operator(other_than=leader)

    def has_three_others(status: dict[str, Any]) -> bool:
        ranked = {worker["name"] for worker in members_of(status)}
        return status["worldSize"] == len(ranked - before) == 3

    status = job.until(has_three_others, "three other pods", 120)
    assert (status["groupRestarts"], status["failures"], status["totalFailures"]) == (1, 0, 0)
    fresh = [pod for pod in job.pods() if pod["metadata"]["name"] not in before]
    assert [pod["metadata"]["annotations"][GROUP_RESTARTS] for pod in fresh] == ["1", "1", "1"]


@pytest.mark.long
def test_eviction_fails_the_job_if_a_rule_says_so(start_job: StartJob) -> None:
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job = start(start_job, disrupted)
    deleted, evicted, _ = job.members()
    job.kubectl("delete", "pod", deleted, "--wait=false")
    job.until(lambda status: status["round"] > 1 and status["worldSize"] == 3, "the old size again", 90)
    evict(job, evicted)
    message = until_failed(job, "FailurePolicyRule")
    assert "(onPodConditions DisruptionTarget=True)" in message
    assert evicted in message


@pytest.mark.long
def test_failures_of_a_whole_life_are_bounded(start_job: StartJob) -> None:
    job = start(start_job, maxFailures=9, backoffLimit=1)
    exit_with(job, job.members()[0], 3)
    job.until(lambda status: status["totalFailures"] == 1 and status["worldSize"] == 3, "the next round", 60)
    exit_with(job, job.members()[0], 3)
    message = until_failed(job, "BackoffLimitExceeded")
    assert message.startswith("2 failures since the job began, failurePolicy.backoffLimit allows 1; the last: rank 0 ")


def grown_at(status: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(status["operatorState"]["lastGrowthTime"])


def start_and_scale_up(start_job: StartJob, pause_seconds: int) -> JobUnderTest:
    """Starts two workers, asks for a third, and waits until that one waits."""
    policy = {"minSecondsBetweenGrowths": pause_seconds}
    job = start_job(script=SCRIPT, replicas=2, resizePolicy=policy)
    job.until_world(2)
    job.kubectl("scale", "epj", job.name, "--replicas=3")
    job.until(lambda _: job.condition("Resizing").get("reason") == "CoolingDown", "the condition", 90)
    assert f"minSecondsBetweenGrowths is {pause_seconds}" in job.condition("Resizing")["message"]
    return job


@pytest.mark.long
def test_group_grows_no_sooner_than_the_policy_allows(start_job: StartJob) -> None:
    job = start_and_scale_up(start_job, PAUSE_SECONDS)
    first = grown_at(job.status)
    second = grown_at(job.until_world(3, PAUSE_SECONDS + 60))
    assert (second - first).total_seconds() >= PAUSE_SECONDS - 1


@pytest.mark.long
def test_round_that_forms_anyway_takes_waiting_newcomers_along(start_job: StartJob) -> None:
    job = start_and_scale_up(start_job, 3600)
    exit_with(job, job.members()[0], 1)
    job.until_world(3, 60)
    job.until_event("WorkerFailed", "2 -> 3 workers")
