"""A job with checkpoints in a bucket, and no volume: all of its pods go at once, and it goes on from the last object."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.client.test_plugin import epj
from tests.e2e.job_under_test import JobUnderTest, read_example, run_kubectl
from tests.paths import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]

IMAGE = "elastic-pytorch-worker-object-storage:dev"
SERVER = "objects"
PORT = 5000


@pytest.fixture(scope="module")
def image() -> str:
    subprocess.run([ROOT / "hack" / "images" / "object-storage.sh"], check=True, timeout=900)
    return IMAGE


@pytest.fixture
def bucket(namespace: str, image: str) -> Iterator[dict[str, str]]:
    """A server that speaks S3, in a pod that outlives those of the job; returns the environment in which its bucket is found."""
    labels = {"app": SERVER}
    make = f"import urllib.request as r; r.urlopen(r.Request('http://127.0.0.1:{PORT}/bucket', method='PUT'))"
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "moto.server", "-H", "0.0.0.0", "-p", str(PORT)],
        "env": [{"name": "S3_IGNORE_SUBDOMAIN_BUCKETNAME", "value": "true"}],  # or the Service's name would be a bucket's
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": SERVER, "labels": labels},
        "spec": {"containers": [container]},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVER},
        "spec": {"selector": labels, "ports": [{"port": PORT}]},
    }
    run_kubectl(
        "-n", namespace, "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, service]})
    )
    run_kubectl("-n", namespace, "wait", f"pod/{SERVER}", "--for=condition=Ready", "--timeout=60s")
    run_kubectl("-n", namespace, "exec", SERVER, "--", "python3", "-c", make)
    yield {
        "AWS_ENDPOINT_URL": f"http://{SERVER}.{namespace}:{PORT}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    run_kubectl("-n", namespace, "delete", f"pod/{SERVER}", f"service/{SERVER}", "--ignore-not-found", "--wait=false")


def test_all_pods_go_at_once_and_the_last_object_is_found(namespace: str, image: str, bucket: dict[str, str]) -> None:
    manifest = read_example(ROOT / "examples" / "char-lm" / "job-elastic.yaml")
    pod = manifest["spec"]["template"]["spec"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] == "tmp"]
    [container] = pod["containers"]
    container["image"] = image
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] == "tmp"]
    container["args"] = [
        container["args"][0],
        "--checkpoint-dir",
        "s3://bucket/runs",
        "--checkpoint-every",
        "1",
        "--steps",
        "300",
    ]
    container["env"] += [{"name": name, "value": value} for name, value in bucket.items()]
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    job = JobUnderTest(manifest["metadata"]["name"], namespace)

    def saved(status: dict[str, object]) -> int:
        progress = status.get("progress") or {}
        return progress.get("checkpointStep") or 0  # type: ignore[attr-defined, no-any-return]

    status = job.until(lambda status: saved(status) >= 10, "a checkpoint in the bucket", 120)
    kept = saved(status)
    places = json.loads(epj(namespace, "checkpoints", job.name, "-o", "json"))["places"]
    assert [place["place"].partition("/runs/")[0] for place in places] == ["s3://bucket"]
    newest = places[0]["checkpoints"][0]
    assert newest["step"] >= kept and newest["complete"] and newest["bytes"] > 10_000
    names = [pod["metadata"]["name"] for pod in job.pods()]
    job.kubectl("delete", "pod", *names, "--grace-period=0", "--force")

    status = job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 240)
    text = "\n".join("\n".join(job.logs(pod["metadata"]["name"])) for pod in job.pods())
    assert status["state"] == "Complete", f"{status.get('conditions')}\n{text[-3000:]}"
    starts = [int(line.split()[3].partition("/")[0]) for line in text.splitlines() if line.startswith("start at step ")]
    assert starts and min(starts) >= kept, f"{starts}: it goes on from a step of the bucket, of which {kept} was there"
    assert "checkpoint checkpoint-g" in text
    assert "no checkpoint: " not in text
