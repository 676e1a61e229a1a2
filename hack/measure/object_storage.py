"""moto's server of S3 in the cluster, which keeps objects in memory, and jobs that use it."""

from collections.abc import Sequence
from typing import Any

from measure.kind_cluster import SECURITY, USER

# hack/images/object-storage.sh builds it: the workers' image, with obstore and moto.
IMAGE = "elastic-pytorch-worker-object-storage:dev"
SERVER, PORT, BUCKET = "objects", 5000, "bucket"
COMMAND = ("python3", "-m", "moto.server", "-H", "0.0.0.0", "-p", str(PORT))


def server(command: Sequence[str] = COMMAND) -> tuple[dict[str, Any], dict[str, Any]]:
    labels = {"app": SERVER}
    container = {
        "name": "server",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        # Otherwise the Service's name would be a bucket's.
        "env": [{"name": "S3_IGNORE_SUBDOMAIN_BUCKETNAME", "value": "true"}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {**USER, **SECURITY, "readOnlyRootFilesystem": False},
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
    """Gives a job's pod template the image and the environment of its namespace's server."""
    [container] = pod["containers"]
    container["image"] = IMAGE
    found = {
        "AWS_ENDPOINT_URL": f"http://{SERVER}:{PORT}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    container["env"] = list(container.get("env", ()))
    container["env"] += [{"name": name, "value": value} for name, value in found.items()]
