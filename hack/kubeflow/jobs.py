"""The jobs that lose the same pods: one script, image and pod template in each. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from measure.recorded_job import recorded_job

SCRIPTS = (
    "hack/kubeflow/scripts/train.py",
    "hack/kubeflow/scripts/later_torchrun.py",
    "tests/worker_image/scripts/events.py",
)
SIZE, SMALLEST = 3, 2  # workers; one for each node of the kind cluster
STEP_SECONDS = 0.05
CHECKPOINT_STEPS = 20
GROUP_SECONDS = 15  # the timeout of init_process_group
GRACE_SECONDS = 5
JOB_LABEL, INDEX_LABEL = "training.kubeflow.org/job-name", "training.kubeflow.org/replica-index"
PYTORCH_JOB = ("kubeflow.org/v1", "pytorchjobs", JOB_LABEL)

# What an expert sets: each of torchrun's waits as short as whole seconds allow. Its defaults are 30
# s for a last call, and a heartbeat each 5 s.
RENDEZVOUS = {
    "join_timeout": 600,
    "last_call_timeout": 1,
    "keep_alive_interval": 1,
    "keep_alive_max_attempt": 3,
    "read_timeout": 60,
}
MAX_RESTARTS = 1000  # each loss of a peer uses one up
ENVIRONMENT = {
    "PET_MONITOR_INTERVAL": "0.1",
    # As the operator sets them for stock torchrun: with torch's defaults a newcomer, or the loss of
    # rank 0, may end the job.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job that pods are lost in.

    Attributes:
        name: of its objects, before their number.
        how: the state survives, an option of the script.
    """

    name: str
    title: str
    how: str = "plain"
    kubeflow: bool = False


JOBS = {
    job.name: job
    for job in (
        Job("plain", "ElasticPyTorchJob, plain script"),
        Job("pytorchjob", "PyTorchJob, tuned, plain script", kubeflow=True),
        Job("library", "ElasticPyTorchJob, training library", how="library"),
    )
}


def manifest(job: Job, name: str, folder: str) -> dict[str, Any]:
    """The object of a job."""
    made = recorded_job(name, folder, list(_arguments(job, name)), stock=job.kubeflow)
    pod = made["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    if job.kubeflow:
        return _pytorchjob(name, pod)
    made["spec"] |= {"replicas": SIZE, "minReplicas": SMALLEST, "maxReplicas": SIZE}
    if job.how == "library":
        made["spec"]["prepare"] = {}
    return made


def _arguments(job: Job, name: str) -> Iterator[str]:
    yield from (
        "/scripts/train.py",
        "--how",
        job.how,
        "--size",
        str(SIZE),
        "--step-seconds",
        str(STEP_SECONDS),
    )
    yield from ("--folder", f"/checkpoints/{name}", "--checkpoint-every", str(CHECKPOINT_STEPS))
    yield from ("--group-timeout-seconds", str(GROUP_SECONDS))


def _pytorchjob(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A PyTorchJob of pods whose torchruns meet in a store of worker 0's."""
    pod["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {JOB_LABEL: name}}
    [container] = pod["containers"]
    container["command"] = ["python3", "/scripts/later_torchrun.py"]
    container["env"] += [
        {"name": variable, "value": value} for variable, value in ENVIRONMENT.items()
    ]
    container["env"].append(
        {"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    )
    policy = {
        "minReplicas": SMALLEST,
        "maxReplicas": SIZE,
        "maxRestarts": MAX_RESTARTS,
        "rdzvBackend": "c10d",
        "rdzvId": name,
        "rdzvConf": [{"key": key, "value": str(value)} for key, value in RENDEZVOUS.items()],
    }
    workers = {"replicas": SIZE, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    spec = {
        "nprocPerNode": "1",
        "elasticPolicy": policy,
        "pytorchReplicaSpecs": {"Worker": workers},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": spec,
    }
