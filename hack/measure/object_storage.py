"""A server that speaks S3 (moto's) in the cluster, and jobs that keep their checkpoints there.

It keeps objects in memory only.
"""

from collections.abc import Sequence
from typing import Any

# hack/images/object-storage.sh: the workers', with obstore and moto
IMAGE = "elastic-pytorch-worker-object-storage:dev"
SERVER, PORT, BUCKET = "objects", 5000, "bucket"
COMMAND = ("python3", "-m", "moto.server", "-H", "0.0.0.0", "-p", str(PORT))


def server(command: Sequence[str] = COMMAND) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the pod and the Service of the server."""
    labels = {"app": SERVER}
    container = {
        "name": "server",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        # Or the Service's name would be a bucket's.
        "env": [{"name": "S3_IGNORE_SUBDOMAIN_BUCKETNAME", "value": "true"}],
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
        # A second start would have no objects.
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVER},
        "spec": {"selector": labels, "ports": [{"port": PORT}]},
    }
    return pod, service


def keep_in_bucket(pod: dict[str, Any]) -> None:
    """Gives the pod template of a job the image and the environment in which it finds the server of its namespace."""
    [container] = pod["containers"]
    container["image"] = IMAGE
    found = {
        "AWS_ENDPOINT_URL": f"http://{SERVER}:{PORT}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    container["env"] = [
        *container.get("env", ()),
        *({"name": name, "value": value} for name, value in found.items()),
    ]
