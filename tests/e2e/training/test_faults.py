"""Failures that are easily taken for others' are told in their own words, and counted or not."""

import json
from typing import Any

import pytest
from measure.kind_cluster import read_example

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, run_kubectl
from tests.e2e.kind_nodes import docker
from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e


# What NCCL raises on every rank when, for instance, NCCL_SOCKET_IFNAME names no interface (torch
# 2.6).
def start_with_command(namespace: str, command: list[str], **spec: Any) -> JobUnderTest:
    manifest = read_example(ROOT / "examples" / "all-reduce" / "job.yaml")
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = command
    del container["args"]
    manifest["spec"] |= spec
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    return JobUnderTest(manifest["metadata"]["name"], namespace)


@pytest.mark.long
def test_command_that_joins_nothing_fails_the_job_with_the_cure(namespace: str) -> None:
    job = start_with_command(namespace, ["python3", "-c", "print('each worker trains alone')"])
    job.until(lambda status: status.get("state") == "Failed", "the failure", 90)
    condition = job.condition("Failed")
    assert condition["reason"] == "NeverJoined"
    assert "args" in condition["message"]
    assert "torchrun" in condition["message"]


@pytest.mark.long
def test_command_that_is_not_in_the_image_is_told_at_once_and_given_up(namespace: str) -> None:
    job = start_with_command(namespace, ["pyton", "/examples/all-reduce/train.py"], replicas=1)
    job.until(
        lambda _: "pyton" in job.condition("Running").get("message", ""),
        "the reason in the condition",
        60,
    )
    job.until(lambda status: status.get("state") == "Failed", "the failure", 150)
    condition = job.condition("Failed")
    assert condition["reason"] == "CannotStart"
    assert "pyton" in condition["message"]


def test_node_whose_pods_fail_at_start_does_not_fail_the_job(namespace: str) -> None:
    """One of the nodes lacks the command, so the container runtime cannot start its pods."""
    nodes = run_kubectl(
        "get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "name"
    ).stdout.split()
    broken, *sound = [name.removeprefix("node/") for name in nodes]
    folder = f"/var/lib/{namespace}"
    for node in (broken, *sound):
        docker("exec", node, "mkdir", "-p", folder)
    for node in sound:
        script = '#!/bin/sh\nexec python3 -m elastic_pytorch.agent "$@"\n'
        docker(
            "exec",
            node,
            "sh",
            "-c",
            f"printf '%s' '{script}' > {folder}/start && chmod 755 {folder}/start",
        )
    try:
        manifest = read_example(ROOT / "examples" / "all-reduce" / "job.yaml")
        manifest["spec"]["failurePolicy"] = {"maxFailures": 0}
        pod = manifest["spec"]["template"]["spec"]
        pod["containers"][0] |= {"command": ["/start/start"], "args": ENDLESS}
        pod["containers"][0]["volumeMounts"].append({"name": "start", "mountPath": "/start"})
        pod["volumes"].append({"name": "start", "hostPath": {"path": folder, "type": "Directory"}})
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
        job = JobUnderTest(manifest["metadata"]["name"], namespace)
        status = job.until(
            lambda status: status.get("worldSize") == 3, "all workers on the other nodes", 180
        )
        assert (status["failures"], status["state"]) == (0, "Running")
        failed = [pod for pod in job.pods() if pod["spec"].get("nodeName") == broken]
        assert failed, "the scheduler spreads the workers, so one of them has been there"
        assert all(
            worker["node"] != broken for worker in status["workers"] if worker["state"] == "Running"
        )
    finally:
        run_kubectl("-n", namespace, "delete", "epj", "--all", "--wait=true")
        until(
            lambda: not run_kubectl("-n", namespace, "get", "pods", "-o", "name").stdout.strip(),
            "the pods to go",
        )
        for node in (broken, *sound):
            docker("exec", node, "rm", "-rf", folder)
