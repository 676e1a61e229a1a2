"""A HorizontalPodAutoscaler scales a job by the operator's metric, through the metrics API."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from measure.kind_cluster import CONTROL_PLANE, OPERATOR_NAMESPACE, OPERATORS

from tests.documentation import blocks
from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import StartJob, run_kubectl
from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.long

NAME = "external-metrics"
API = "/apis/external.metrics.k8s.io/v1beta1"
APISERVICE = f"v1beta1.{NAME.replace('-', '.')}.k8s.io"

# A step takes the seconds in a file, divided by the workers: a batch of a fixed size, split among
# them.
SCRIPT = """
import os, time
from pathlib import Path
import torch.distributed as dist
from elastic_pytorch import report

dist.init_process_group("gloo")
load = Path("/checkpoints", os.environ["TORCHELASTIC_RUN_ID"] + ".load")
step = 0
while True:
    dist.barrier()
    try:
        seconds = float(load.read_text())
    except (FileNotFoundError, ValueError):
        seconds = 1.0
    time.sleep(seconds / dist.get_world_size())
    step += 1
    report(step=step)
"""


@pytest.fixture
def metrics_api(namespace: str) -> Iterator[None]:
    operators = Resource("v1", "pods", OPERATOR_NAMESPACE).list(OPERATORS)
    urls = [
        f"http://{pod['status']['podIP']}:8781/metrics"
        for pod in operators
        if pod["status"].get("podIP")
    ]
    labels = {"app": NAME}
    container = {
        "name": "server",
        "image": operators[0]["spec"]["containers"][0]["image"],
        "imagePullPolicy": "Never",
        "command": ["python3", "/scripts/external_metrics.py", *urls],
        "readinessProbe": {"tcpSocket": {"port": 6443}, "periodSeconds": 1},
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
    }
    script = (Path(__file__).parent / "external_metrics.py").read_text()
    server: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME},
            "data": {"external_metrics.py": script},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": NAME, "labels": labels},
            "spec": {
                "containers": [container],
                "volumes": [{"name": "scripts", "configMap": {"name": NAME}}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": 6443}]},
        },
    ]
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": APISERVICE},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": namespace, "name": NAME},
        },
    }
    run_kubectl("-n", namespace, "apply", "-f", "-", input=yaml.safe_dump_all(server))
    run_kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=100s")
    until_reached(namespace)
    try:
        run_kubectl("apply", "-f", "-", input=json.dumps(service))
        run_kubectl(
            "wait", "--for=condition=Available", f"apiservice/{APISERVICE}", "--timeout=100s"
        )
        until_routed()
        yield
    finally:
        run_kubectl("delete", "apiservice", APISERVICE, "--ignore-not-found")


def until_reached(namespace: str) -> None:
    """Waits until the server answers at its Service's address, as seen from the API server's node.

    Before kube-proxy knows the address, a packet to it leaves the cluster. Where a proxy answers
    for every address there, the API server gets a 404 from it, and keeps that connection: all later
    requests get the same answer, for as long as it stays open.
    """
    found = run_kubectl("-n", namespace, "get", "service", NAME, "-o", "jsonpath={.spec.clusterIP}")
    asked = [
        "docker",
        "exec",
        CONTROL_PLANE,
        "curl",
        "--insecure",
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "5",
    ]
    asked += [f"https://{found.stdout}{API}"]
    until(
        lambda: subprocess.run(asked, capture_output=True, check=False).returncode == 0,
        f"an answer to {' '.join(asked)}",
    )


def until_routed() -> None:
    """Waits until the API server routes requests, which it may do after an APIService is ready."""
    until(
        lambda: run_kubectl("get", "--raw", API, check=False).returncode == 0,
        lambda: f"the API: {run_kubectl('get', '--raw', API, check=False).stderr}",
    )


def documented_autoscaler() -> dict[str, Any]:
    """The manifest of docs/use/scheduling.md."""
    page = ROOT / "docs" / "use" / "scheduling.md"
    manifests: list[dict[str, Any]] = [
        yaml.safe_load(block.text) for block in blocks(page) if block.language == "yaml"
    ]
    [found] = [manifest for manifest in manifests if manifest["kind"] == "HorizontalPodAutoscaler"]
    return found


@pytest.mark.usefixtures("metrics_api")
def test_autoscaler_keeps_the_time_of_a_step(start_job: StartJob) -> None:
    autoscaler = documented_autoscaler()
    target = float(autoscaler["spec"]["metrics"][0]["external"]["target"]["value"])
    assert (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) == (2, 4)
    job = start_job(
        script=SCRIPT, replicas=2, minReplicas=2, maxReplicas=4, resizePolicy={"settleSeconds": 2}
    )
    job.until_world(2)
    autoscaler["metadata"] = {"name": job.name}
    autoscaler["spec"]["scaleTargetRef"]["name"] = job.name
    autoscaler["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"][
        "job_name"
    ] = job.name
    autoscaler["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}

    set_load(job.members()[0], job.namespace, 4 * target)
    job.until(
        lambda status: float(status.get("progress", {}).get("stepsPerSecond", 9)) < 0.8 / target,
        "slow steps",
        120,
    )
    run_kubectl("-n", job.namespace, "apply", "-f", "-", input=yaml.safe_dump(autoscaler))
    job.until_world(4, 300)
    set_load(job.members()[0], job.namespace, target / 4)
    job.until_world(2, 300)
    assert job.get()["spec"]["replicas"] == 2
    assert job.status["failures"] == 0


def set_load(pod: str, namespace: str, seconds: float) -> None:
    code = (
        "import os; from pathlib import Path; "
        "path = Path('/checkpoints', os.environ['ELASTIC_PYTORCH_JOB_UID'] + '.load'); "
        f"path.with_suffix('.new').write_text('{seconds}'); path.with_suffix('.new').replace(path)"
    )
    run_kubectl("-n", namespace, "exec", pod, "--", "python3", "-c", code)
