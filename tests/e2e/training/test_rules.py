"""`failurePolicy.rules` on a real cluster."""

import json
from typing import Any

import pytest
from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.job_under_test import (
    JobUnderTest,
    StartJob,
    leading_operator,
    members_of,
    run_kubectl,
)

pytestmark = pytest.mark.e2e

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


def exit_with(job: JobUnderTest, pod: str, code: int) -> None:
    ask = f"echo {code} > /tmp/exit-code.new && mv /tmp/exit-code.new /tmp/exit-code"
    job.kubectl("exec", pod, "-c", "pytorch", "--", "sh", "-c", ask)


def evict(job: JobUnderTest, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": job.namespace},
    }
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    run_kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))


def start(start_job: StartJob, rule: dict[str, Any]) -> JobUnderTest:
    job = start_job(script=SCRIPT, failurePolicy={"maxFailures": 0, "rules": [rule]})
    job.until_world(3)
    return job


def until_failed(job: JobUnderTest, reason: str) -> str:
    job.until(lambda status: status.get("state") == "Failed", "the failure", 60)
    condition = job.condition("Failed")
    assert condition["reason"] == reason
    return str(condition["message"])


@pytest.mark.parametrize(
    "operator_is_lost", [False, pytest.param(True, marks=[pytest.mark.serial, pytest.mark.long])]
)
def test_exit_code_restarts_the_group_in_fresh_pods_once(
    start_job: StartJob, operator_is_lost: bool
) -> None:
    job = start(
        start_job, {"action": "RestartGroup", "onExitCodes": {"operator": "In", "values": [42]}}
    )
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
    job.until(
        lambda status: status["round"] > 1 and status["worldSize"] == 3, "the old size again", 90
    )
    evict(job, evicted)
    message = until_failed(job, "FailurePolicyRule")
    assert "(onPodConditions DisruptionTarget=True)" in message
    assert evicted in message
