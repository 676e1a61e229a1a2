"""The jobs, with one script, image and pod template, and the pods that they lose. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measure.recorded_job import recorded_job

SCRIPTS = (
    "hack/kubeflow/scripts/train.py",
    "hack/kubeflow/scripts/later_torchrun.py",
    "tests/worker_image/scripts/events.py",
)
SIZE, SMALLEST = 3, 2  # workers; the kind cluster has a node for each
STEP_SECONDS = 0.05
CHECKPOINT_STEPS = 20
GROUP_SECONDS = 15  # the timeout of init_process_group
GRACE_SECONDS = 5
JOB_LABEL, INDEX_LABEL = "training.kubeflow.org/job-name", "training.kubeflow.org/replica-index"
PYTORCH_JOB = ("kubeflow.org/v1", "pytorchjobs", JOB_LABEL)

# An expert's settings: torchrun's waits are as short as whole seconds allow. By default, a last
# call takes 30 s, and a heartbeat comes every 5 s.
RENDEZVOUS = {
    "join_timeout": 600,
    "last_call_timeout": 1,
    "keep_alive_interval": 1,
    "keep_alive_max_attempt": 3,
    "read_timeout": 60,
}
MAX_RESTARTS = 1000  # of which each loss of a peer uses one
ENVIRONMENT = {
    "PET_MONITOR_INTERVAL": "0.1",
    # As the operator sets them for stock torchrun: by default, a newcomer or the loss of rank 0 may
    # end the job.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job that loses pods; `how` is an option of the script: how the state survives."""

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
    made = recorded_job(name, folder, _arguments(job, name), stock=job.kubeflow)
    pod = made["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    if job.kubeflow:
        return _pytorchjob(name, pod)
    made["spec"] |= {"replicas": SIZE, "minReplicas": SMALLEST, "maxReplicas": SIZE}
    if job.how == "library":
        made["spec"]["prepare"] = {}
    return made


def _arguments(job: Job, name: str) -> list[str]:
    words = f"/scripts/train.py --how {job.how} --size {SIZE} --step-seconds {STEP_SECONDS}"
    words += f" --folder /checkpoints/{name} --checkpoint-every {CHECKPOINT_STEPS}"
    return f"{words} --group-timeout-seconds {GROUP_SECONDS}".split()


def _pytorchjob(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    pod["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {JOB_LABEL: name}}
    [container] = pod["containers"]
    container["command"] = ["python3", "/scripts/later_torchrun.py"]
    container["env"] += [{"name": key, "value": value} for key, value in ENVIRONMENT.items()]
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    container["env"].append({"name": "PET_LOCAL_ADDR", "valueFrom": address})
    policy = {
        "minReplicas": SMALLEST,
        "maxReplicas": SIZE,
        "maxRestarts": MAX_RESTARTS,
        "rdzvBackend": "c10d",
        "rdzvId": name,
        "rdzvConf": [{"key": key, "value": str(value)} for key, value in RENDEZVOUS.items()],
    }
    workers = {"replicas": SIZE, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    spec = {"nprocPerNode": "1", "elasticPolicy": policy}
    spec["pytorchReplicaSpecs"] = {"Worker": workers}
    version, kind = "kubeflow.org/v1", "PyTorchJob"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    title: str
    first: bool = False  # loses worker 0 of a PyTorchJob, or rank 0 of a job of this operator
    force: bool = False
    grows: bool = False  # by a worker, instead of a loss


KINDS = {
    kind.name: kind
    for kind in (
        Kind("worker-force", "a worker is deleted by force", force=True),
        Kind("first-force", "worker 0, or rank 0, is deleted by force", first=True, force=True),
        Kind("worker-delete", "a worker is deleted"),
        Kind("first-delete", "worker 0, or rank 0, is deleted", first=True),
        Kind("grow", "scaled from 2 to 3", grows=True),
    )
}
LOSSES = [name for name, kind in KINDS.items() if not kind.grows]


def victim(kind: Kind, job: Job, pods: Sequence[Mapping[str, Any]], rank_0: str) -> str:
    """The name of the pod to lose; `rank_0` was rank 0 in the last step."""
    alive = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    first = [
        str(each["name"])
        for each in alive
        if (each["labels"].get(INDEX_LABEL) == "0" if job.kubeflow else each["name"] == rank_0)
    ]
    others = sorted(each["name"] for each in alive if each["name"] not in (rank_0, *first))
    found = first if kind.first else others
    if not found:
        names = ", ".join(each["name"] for each in alive) or "none"
        raise ValueError(f"no pod to lose among {names}")
    return found[0]
