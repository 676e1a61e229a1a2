"""A node that computes wrong numbers is found before the first round and left out; after a loss the others are checked again."""

from typing import Any

import pytest

from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl

pytestmark = pytest.mark.e2e

SCRIPT = """\
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

if os.environ["NODE"] == os.environ["FAULTY_NODE"]:
    torch.mm = lambda first, second, *, out: out.zero_()

if __name__ == "__main__":
    dist.init_process_group("gloo")
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.1)
        if Path("/tmp/fail").exists():
            Path("/tmp/fail").unlink()
            raise SystemExit("told to fail")
"""


def nodes_of(job: JobUnderTest) -> set[str]:
    members = set(job.members())
    return {pod["spec"]["nodeName"] for pod in job.pods() if pod["metadata"]["name"] in members}


def checks_without_errors(job: JobUnderTest, pod: str) -> int:
    return sum("node check" in line and ": no error, matrix products " in line for line in job.logs(pod))


def test_faulty_node_is_left_out(start_job: StartJob) -> None:
    workers = run_kubectl("get", "nodes", "--selector=!node-role.kubernetes.io/control-plane", "--output=name")
    nodes = [line.removeprefix("node/") for line in workers.stdout.split()]
    faulty = nodes[0]

    def spread(pod: dict[str, Any]) -> None:
        """One worker on each node; each imports the script, with its fault, before any check."""
        pod["containers"][0]["env"] = [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "FAULTY_NODE", "value": faulty},
            {"name": "PYTHONPATH", "value": "/scripts"},
            {"name": "ELASTIC_PYTORCH_PRELOAD", "value": "train"},
        ]
        pod["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": {"elasticpytorch.dev/role": "worker"}},
            }
        ]

    preflight = {"seconds": 120, "maxSlowdownPercent": 10000}
    job = start_job(script=SCRIPT, change_pod=spread, replicas=len(nodes), minReplicas=2, preflight=preflight)
    status = job.until_world(len(nodes), 180)
    [left_out] = status["leftOutNodes"]
    assert left_out["node"] == faulty
    assert left_out["message"] == (
        "has failed its check: matrix products: WrongResultError: a product of two matrices is wrong"
    )
    assert faulty not in nodes_of(job)
    events = Resource("v1", "events", job.namespace).list("")
    notes = {event["reason"]: event["message"] for event in events if event["reason"].endswith("LeftOut")}
    note = notes.pop("NodeLeftOut")
    assert note.startswith(f"Node {faulty} is left out for 30 minutes: {left_out['worker']} has failed its check")
    assert notes == {}, "the others pass together, too"

    checks = {pod: checks_without_errors(job, pod) for pod in job.members()}
    assert all(checks.values())
    job.kubectl("exec", job.members()[1], "--", "touch", "/tmp/fail")
    job.until(lambda now: now["round"] > status["round"] and now.get("worldSize") == len(nodes), "a whole group", 180)
    assert {pod: checks_without_errors(job, pod) for pod in job.members()} == {pod: count + 1 for pod, count in checks.items()}
