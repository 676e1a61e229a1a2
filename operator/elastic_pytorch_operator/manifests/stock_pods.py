"""The pods of a job whose group stock torchrun forms: workers, and the pod of their c10d store."""

import re

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.manifests.agent_injection import native_resources
from elastic_pytorch_operator.manifests.worker_pod import (
    building,
    owned,
    pod_from_template,
    provide,
    tolerations,
    variables,
)
from elastic_pytorch_operator.model.actions import CreatePod
from elastic_pytorch_operator.spec.job import Job, training_container

STOCK_COMMAND = ["python3", "-m", "torch.distributed.run"]
# Some builds of torch have no libuv (Debian's), and a server that asks for it fails. Signals are
# blocked before torch starts threads, and awaited, because the first process of a container has no
# default action for SIGTERM.
STORE_PROGRAM = """\
import signal, sys
from datetime import timedelta
from torch.distributed import TCPStore
stops = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, stops)
def serve(use_libuv):
    return TCPStore("localhost", int(sys.argv[1]), None, True, timedelta(seconds=60), False,
                    use_libuv=use_libuv)
try:
    store = serve(True)
except RuntimeError as error:
    if "libuv" not in str(error):
        raise
    store = serve(False)
print("serving the c10d store on port", store.port, flush=True)
signal.sigwait(stops)
"""
STORE_GRACE_SECONDS = 2
# What torch with CUDA needs for its import; a limit, because some namespaces take no pod without.
STORE_CPU, STORE_MEMORY, STORE_MEMORY_LIMIT = "50m", "256Mi", "2Gi"
STORE_RESOURCES = {
    "requests": {"cpu": STORE_CPU, "memory": STORE_MEMORY},
    "limits": {"memory": STORE_MEMORY_LIMIT},
}
# How a LimitRange and a ResourceQuota refuse a pod (Kubernetes' plugin/pkg/admission).
ABOUT_RESOURCES = re.compile(r"(usage|ratio) per (Container|Pod) is |must specify ")
STORE_WAY_OUT = (
    f"it is the pod of the rendezvous' store, which requests cpu {STORE_CPU} and memory "
    f"{STORE_MEMORY}, with a memory limit of {STORE_MEMORY_LIMIT}: leave cpu and memory out of the "
    "training container's resources, so that a LimitRange gives both its defaults, or set "
    "rendezvous.backend to operator, which needs no store"
)
STORE_TAKES = (
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
)

JOIN_SECONDS = 30 * 24 * 3600  # a worker waits for room in the cluster
# Loss is found after interval x attempts: torch compares times of day, and clocks may differ by a
# second or two.
KEEP_ALIVE_SECONDS, KEEP_ALIVE_ATTEMPTS = 2, 3
READ_SECONDS = 60


@building("Pod")
def stock_worker_pod(job: Job, action: CreatePod, suffix: str) -> MutableManifest:
    """The image's own torchrun finds the rendezvous in its environment."""
    pod, container = pod_from_template(job, action, suffix)
    pod["metadata"]["labels"][names.LABEL_RENDEZVOUS] = str(action.rendezvous)
    if not container.get("command"):
        container["command"] = list(STOCK_COMMAND)
    provide(container, _stock_environment(job, action.index, action.rendezvous))
    return pod


@building("Pod")
def store_pod(job: Job, suffix: str, rendezvous: int) -> MutableManifest:
    template = job.template["spec"]
    trains = training_container(job.template)
    container: MutableManifest = {
        "name": names.TRAINING_CONTAINER,
        "image": trains.get("image", ""),
        "command": ["python3", "-c", STORE_PROGRAM, str(job.store_port)],
        "ports": [{"name": "c10d", "containerPort": job.store_port, "protocol": "TCP"}],
        "resources": _store_resources(trains),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    container |= {
        field: trains[field] for field in ("imagePullPolicy", "securityContext") if field in trains
    }
    metadata = owned(job, f"{job.key.name}-store-{suffix}")
    metadata["annotations"] = {names.ANNOTATION_TRAINING_CONTAINER: container["name"]}
    metadata["labels"] |= {
        names.LABEL_ROLE: names.ROLE_STORE,
        names.LABEL_RENDEZVOUS: str(rendezvous),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **{field: template[field] for field in STORE_TAKES if field in template},
            "containers": [container],
            "tolerations": tolerations(template.get("tolerations") or []),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostname": _store_hostname(job, rendezvous),
            "subdomain": job.key.name,
            # A store without its memory is useless to its clients, which all end.
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": STORE_GRACE_SECONDS,
        },
    }


def _store_resources(training: Manifest) -> MutableManifest:
    """Without what a LimitRange gives to both containers."""
    named = {name for amounts in native_resources(training).values() for name in amounts}
    return {
        kind: {name: amount for name, amount in amounts.items() if name in named}
        for kind, amounts in STORE_RESOURCES.items()
    }


def explain_refusal(message: str) -> str:
    return f"{message}; {STORE_WAY_OUT}" if ABOUT_RESOURCES.search(message) else message


def run_id(job: Job, rendezvous: int) -> str:
    """The rendezvous' id, which scripts see as TORCHELASTIC_RUN_ID.

    A closed rendezvous stays closed: in an etcd that lives on, the next one needs another id.
    """
    same = rendezvous == 1 or job.backend == names.BACKEND_C10D
    return job.uid if same else f"{job.uid}-{rendezvous}"


def _store_hostname(job: Job, rendezvous: int) -> str:
    """Each rendezvous has its own: no resolver answers with the address of an earlier store."""
    return f"{job.key.name}-store-{rendezvous}"


def _stock_environment(job: Job, index: int, rendezvous: int) -> list[MutableManifest]:
    c10d = job.backend == names.BACKEND_C10D
    configuration = {
        "join_timeout": JOIN_SECONDS,
        "last_call_timeout": max(1, round(job.settle_seconds)),
        "keep_alive_interval": KEEP_ALIVE_SECONDS,
        "keep_alive_max_attempt": KEEP_ALIVE_ATTEMPTS,
        "read_timeout": READ_SECONDS,
        **({"is_host": 0} if c10d else {}),
    }
    store = f"{_store_hostname(job, rendezvous)}.{job.key.name}:{job.store_port}"
    values = {
        "ELASTIC_PYTORCH_JOB": job.key.name,
        "ELASTIC_PYTORCH_JOB_UID": job.uid,
        "ELASTIC_PYTORCH_WORKER_INDEX": str(index),
        "PET_NNODES": f"{job.minimum}:{job.maximum}",
        "PET_NPROC_PER_NODE": job.nproc_per_node,
        "PET_MAX_RESTARTS": str(job.max_failures),
        "PET_RDZV_BACKEND": job.backend,
        "PET_RDZV_ENDPOINT": store if c10d else job.endpoint,
        "PET_RDZV_ID": run_id(job, rendezvous),
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in configuration.items()),
        # A shared agent's store would keep the address of a rank 0 that has gone.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # No worker waits to learn the number of processes from a peer that died while joining.
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
    }
    # By address, no peer waits for a name to be published, or reaches a predecessor.
    address: MutableManifest = {
        "name": "PET_LOCAL_ADDR",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    return [*variables(values), address]
