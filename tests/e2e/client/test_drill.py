"""`kubectl epj drill` on a real job: what it does, what it finds slow, and what it may not do."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.api_requests import KUBECONFIG
from tests.e2e.client.test_plugin import epj
from tests.e2e.job_under_test import StartJob, run_kubectl

pytestmark = pytest.mark.e2e

# It stops at once, unless the file is there: then as a script that saves for five seconds.
SCRIPT = """
import os, pathlib, signal, sys, time
import torch.distributed as dist
from elastic_pytorch import report

def stop(*_):
    if pathlib.Path("/tmp/slow").exists():
        time.sleep(5)
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
dist.init_process_group("gloo")
checkpoint = pathlib.Path("/checkpoints") / (os.environ["TORCHELASTIC_RUN_ID"] + ".step")
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
while True:
    dist.barrier()
    step += 1
    if dist.get_rank() == 0 and step % 10 == 0:
        new = checkpoint.with_suffix(".new")
        new.write_text(str(step))  # a process may be killed here
        new.replace(checkpoint)
    report(step=step, total=10_000, loss=4 / step ** 0.5, checkpoint_step=step // 10 * 10)
    time.sleep(0.1)
"""


def as_editor(namespace: str, folder: Path) -> Path:
    """The kubeconfig of a user who may edit the namespace, and nothing of the cluster."""
    run_kubectl("-n", namespace, "create", "serviceaccount", "editor")
    run_kubectl(
        "-n", namespace, "create", "rolebinding", "editor", "--clusterrole=edit", f"--serviceaccount={namespace}:editor"
    )
    config: dict[str, Any] = yaml.safe_load(KUBECONFIG.read_text())
    token = run_kubectl("-n", namespace, "create", "token", "editor").stdout.strip()
    for user in config["users"]:
        user["user"] = {"token": token}
    (folder / "editor").write_text(yaml.safe_dump(config))
    return folder / "editor"


def test_drill(start_job: StartJob, namespace: str, tmp_path: Path) -> None:
    job = start_job(script=SCRIPT, replicas=2, minReplicas=1, maxReplicas=3, resizePolicy={"settleSeconds": 1})
    job.until(lambda s: s.get("worldSize") == 2 and s.get("progress", {}).get("step", 0) > 10, "10 steps of two workers")
    before = job.status["round"]

    said = epj(namespace, "drill", job.name, "--kubeconfig", str(as_editor(namespace, tmp_path)))
    assert "kill -9 a training process" in said
    assert 'cannot get resource "nodes"' in " ".join(said.split())
    assert "evict all-reduce-worker-" in epj(namespace, "drill", job.name)
    assert not [pod["metadata"]["name"] for pod in job.pods() if "deletionTimestamp" in pod["metadata"]], "a dry run"
    assert job.get()["spec"]["replicas"] == 2
    assert job.status["round"] == before

    found = json.loads(epj(namespace, "drill", job.name, "--yes", "-o", "json", seconds=280))
    assert found["recovered"], found
    assert [fault["fault"] for fault in found["faults"]] == ["process", "pod", "node", "scale"]
    for fault in found["faults"]:
        assert fault["interruptions"], fault
        for interruption in fault["interruptions"]:
            phases = interruption["phaseSeconds"]
            assert set(phases) == {"detection", "stop", "wait", "start", "init", "firstStep"}
            assert sum(phases.values()) == pytest.approx(interruption["seconds"], abs=0.05)
            assert interruption["slowestPhase"] in phases
    assert job.get()["spec"]["replicas"] == 2
    nodes = json.loads(run_kubectl("get", "nodes", "-o", "json").stdout)["items"]
    assert not [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")]
    assert job.status["failures"] == 0

    job.kubectl("exec", job.members()[0], "-c", "pytorch", "--", "touch", "/tmp/slow")
    # Not a loss: a collective that fails ends the script before its handler does.
    said = " ".join(epj(namespace, "drill", job.name, "--yes", "--only", "scale").split())
    assert "stop (5" in said
    assert "SIGTERM handler" in said
    assert "the slowest phase was stop" in " ".join(epj(namespace, "status", job.name).split())
