"""Jobs of other kinds go through `kubectl epj migrate`, and what comes out trains to its end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from measure.kind_cluster import KUBECTL

from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import JobUnderTest, run_kubectl
from tests.old_jobs import OLD_JOBS, OldJob
from tests.paths import ROOT

pytestmark = pytest.mark.e2e

TEMPLATE = """
        spec:
          terminationGracePeriodSeconds: 10
          securityContext:
            runAsNonRoot: true
            runAsUser: 1000
            runAsGroup: 1000
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: pytorch
              image: elastic-pytorch-worker:dev
              imagePullPolicy: IfNotPresent
              command: {command}
              resources:
                requests:
                  cpu: 50m
                  memory: 256Mi
              securityContext:
                allowPrivilegeEscalation: false
                capabilities:
                  drop: ["ALL"]
              volumeMounts:
                - name: checkpoints
                  mountPath: /checkpoints
          volumes:
            - name: checkpoints
              hostPath:
                path: /shared
"""

ELASTIC = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: elastic
spec:
  nprocPerNode: "1"
  elasticPolicy:
    minReplicas: 2
    maxReplicas: 3
    rdzvBackend: c10d
    maxRestarts: 3
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:"""

IMAGE = "elastic-pytorch-worker:dev"
AT_ONCE = 3  # jobs, whose six pods two cores start within seconds
CASES = ROOT / "tests" / "plugin" / "migration" / "cases"
SCRIPT = "/examples/torchrun/train.py, --checkpoint-dir, /checkpoints"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def migrate(namespace: str, options: list[str], name: str, manifest: str = "") -> JobUnderTest:
    """Migrates a manifest or files, fills in what the remarks ask for, and creates the job."""
    command = [str(KUBECTL), "epj", "migrate", *options]
    done = subprocess.run(
        command,
        env=ENVIRONMENT,
        input=manifest,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    job = yaml.safe_load(done.stdout.replace("fill-in.invalid/image-of-the-training", IMAGE))
    job["spec"].pop("scheduling", None)  # this cluster schedules no gangs
    job["spec"]["cleanPodPolicy"] = "None"  # so that each log is there to the end
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(job))
    return JobUnderTest(name, namespace)


def test_an_elastic_pytorchjob_trains_and_can_be_scaled(namespace: str) -> None:
    start = f"[python, -m, torch.distributed.run, --rdzv_backend=c10d, {SCRIPT}]"
    job = migrate(namespace, ["-f", "-"], "elastic", ELASTIC + TEMPLATE.replace("{command}", start))
    job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
    text = job.until_complete()
    assert "epoch 20 of 20" in text
    assert job.get()["spec"]["minReplicas"] == 2
    assert re.search(r"rank \d of [23], local rank", text)


@pytest.mark.long
def test_jobs_of_other_kinds_train(namespace: str) -> None:
    started: list[tuple[OldJob, JobUnderTest]] = []
    trained = 0
    for old in OLD_JOBS:
        if len(started) - trained == AT_ONCE:
            before, job = started[trained]
            before.assert_trained(job.until_complete())
            trained += 1
        started.append((old, migrate(namespace, old.options(), old.path.stem)))
    for before, job in started[trained:]:
        before.assert_trained(job.until_complete())
    assert started


def test_the_api_server_accepts_what_is_written(shared_namespace: str) -> None:
    refusals, accepted = {}, 0
    for path in sorted(CASES.glob("*/after.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            # Passed on as it is, and this cluster has no such kind.
            if document["kind"] == "JobSet":
                continue
            document["metadata"]["namespace"] = shared_namespace
            resource = Resource(
                document["apiVersion"], f"{document['kind'].lower()}s", shared_namespace
            )
            answer = resource.create(document, dry_run=True)
            accepted += answer.code == 201
            if answer.code != 201:
                refusals[f"{path.parent.name}, {document['kind']}"] = answer.words
    assert not refusals
    assert accepted
