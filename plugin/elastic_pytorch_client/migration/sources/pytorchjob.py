"""PyTorchJob (kubeflow.org/v1), as its training-operator 1.9 treats it."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration.failure_policy import failure_policy
from elastic_pytorch_client.migration.job_metadata import (
    QUEUE_LABEL,
    migrate_metadata,
    run_fields,
)
from elastic_pytorch_client.migration.job_size import bounded_size, nnodes_bounds
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.replica_templates import read_replicas
from elastic_pytorch_client.migration.sources.training_pods import (
    TrainingPods,
    make_job,
    part,
    processes_of,
    replicas_of,
    say_hosts,
)

Manifest = dict[str, Any]

API_GROUP, KIND = "kubeflow.org", "PyTorchJob"
REPLICAS = "spec.pytorchReplicaSpecs"
METRICS = "spec.elasticPolicy.metrics"
CONTAINER = "pytorch"
DEFAULT_RESTART_POLICY = "OnFailure"
DEFAULT_PROCESSES = "auto"
DEFAULT_CLEAN_POD_POLICY = "None"  # here it is Running


def migrate_pytorchjob(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Manifest]:
    spec = part(manifest, "spec")
    replicas = {
        str(role).capitalize(): replica or {}
        for role, replica in part(spec, "pytorchReplicaSpecs").items()
    }
    if not replicas or set(replicas) - {"Master", "Worker"}:
        raise CannotMigrate(REPLICAS, "must have Worker, Master, or both, and nothing else")
    # The Worker first, whose values win.
    roles = sorted(replicas, reverse=True)
    counts = [replicas_of(replicas[role]) for role in roles]
    restarts = [replicas[role].get("restartPolicy") or DEFAULT_RESTART_POLICY for role in roles]
    if restarts[0] != restarts[-1]:
        text = (
            f"{restarts[-1]} differs from the Worker's. Workers are alike, and {restarts[0]} is "
            "taken"
        )
        remarks.add(f"{REPLICAS}.Master.restartPolicy", text)
    templates = [
        (f"{REPLICAS}.{role}.template", part(replicas[role], "template")) for role in roles
    ]
    pods = read_replicas(templates, remarks, entrypoint, CONTAINER)
    total = sum(counts)
    sizes = _sizes(spec, total, counts[0], pods, remarks)
    metadata = migrate_metadata(manifest, remarks)
    policy = _failure_policy(spec, f"{REPLICAS}.{roles[0]}", restarts[0], pods, remarks)
    processes = _processes(spec, pods, remarks)
    say_hosts(REPLICAS, metadata, r"(master|worker)-[0-9]+\b", pods, remarks)
    if pods.launch.by == "python" and "Master" not in replicas and total > 1:
        remarks.add(
            REPLICAS,
            "without a Master, each worker trained by itself. Now all workers form one group",
        )
    run_policy = dict(part(spec, "runPolicy"))
    run_policy["cleanPodPolicy"] = run_policy.get("cleanPodPolicy") or DEFAULT_CLEAN_POD_POLICY
    fields = run_fields("spec.runPolicy", run_policy, metadata, remarks)
    _scheduling(part(run_policy, "schedulingPolicy"), pods.template["spec"], sizes, remarks)
    job = make_job(metadata, pods, sizes, processes, fields, {"failurePolicy": policy})
    return [job, *_autoscaler(part(spec, "elasticPolicy").get("metrics"), job, remarks)]


def _sizes(
    spec: Mapping[str, Any], total: int, count: int, pods: TrainingPods, remarks: Remarks
) -> Manifest:
    """`replicas` and the bounds; torchrun's `--nnodes` wins over the elasticPolicy, as there."""
    elastic, options = spec.get("elasticPolicy"), pods.options
    bounds = total, total
    if elastic is not None:
        given = [elastic.get("minReplicas"), elastic.get("maxReplicas")]
        given = [int(bound) for bound in given if bound is not None] or [count]
        bounds = given[0], given[-1]
    written = nnodes_bounds(options.get("nnodes", ""))
    if written and written != bounds and (written[1] > 1 or total == 1):
        text = f"torchrun's --nnodes={options['nnodes']} is taken, as torchrun did"
        if bounds[0] < bounds[1] and written[0] == written[1]:
            text += (
                f". The elasticPolicy of {bounds[0]} to {bounds[1]} had no effect: set minReplicas "
                "and maxReplicas to be elastic"
            )
        remarks.add(REPLICAS, text)
        bounds = written
    alone = "standalone" in options or written == (1, 1) or (elastic or {}).get("standalone")
    if alone and total > 1:
        remarks.add(
            REPLICAS,
            f"each of the {total} pods trained by itself (standalone). Now they form one group of "
            f"{total} workers",
        )
    if elastic is not None:
        _rendezvous(elastic, remarks)
    why = f"{total} replicas are outside of {bounds[0]} to {bounds[1]}"
    return bounded_size(REPLICAS, total, bounds, why, remarks)


def _rendezvous(elastic: Mapping[str, Any], remarks: Remarks) -> None:
    if elastic.get("rdzvBackend") in ("etcd", "etcd-v2"):
        remarks.drop(
            "spec.elasticPolicy.rdzvBackend",
            "the operator, and not etcd, decides who is in the group",
        )
    reasons = dict.fromkeys(
        ("rdzvPort", "rdzvHost", "rdzvId"), "the operator tells the workers where to meet"
    )
    reasons["rdzvConf"] = (
        "for last_call_timeout, set spec.resizePolicy.settleSeconds. A job below its minimum "
        "waits, it does not time out"
    )
    remarks.drop_set("spec.elasticPolicy", elastic, reasons)


def _processes(spec: Mapping[str, Any], pods: TrainingPods, remarks: Remarks) -> Manifest:
    given, field = spec.get("nprocPerNode"), "nprocPerNode"
    if given is None:
        given = part(spec, "elasticPolicy").get("nProcPerNode")
        field = "nprocPerNode" if given is None else "elasticPolicy.nProcPerNode"
    number = DEFAULT_PROCESSES if given is None else str(given)
    return processes_of(pods, remarks, f"spec.{field}", number)


def _failure_policy(
    spec: Mapping[str, Any], path: str, restart_policy: str, pods: TrainingPods, remarks: Remarks
) -> Manifest:
    restarts = part(spec, "elasticPolicy").get("maxRestarts")
    restarts_path = f"{path}.template, --max-restarts"
    if "max-restarts" not in pods.options and restarts is not None:
        restarts_path = "spec.elasticPolicy.maxRestarts"
        pods.options["max-restarts"] = str(restarts)
    backoff = "spec.runPolicy.backoffLimit", part(spec, "runPolicy").get("backoffLimit")
    path = f"{path}.restartPolicy"
    return failure_policy(path, restart_policy, backoff, pods, remarks, restarts_path)


def _scheduling(
    policy: Mapping[str, Any], pod: Manifest, sizes: Manifest, remarks: Remarks
) -> None:
    path = "spec.runPolicy.schedulingPolicy"
    if policy.get("priorityClass") and not pod.get("priorityClassName"):
        pod["priorityClassName"] = policy["priorityClass"]
        remarks.add(
            f"{path}.priorityClass",
            "becomes the pods' priorityClassName; there it was the PodGroup's",
        )
    texts = {
        "queue": f"for a queue of Kueue, set the label {QUEUE_LABEL}",
        "minAvailable": (
            "with spec.scheduling.gangScheduler, the PodGroup has the size of the "
            f"least group that trains ({sizes.get('minReplicas', sizes['replicas'])})"
        ),
        "minResources": ("spec.scheduling.gangScheduler computes it from the template's requests"),
        "scheduleTimeoutSeconds": (
            "spec.scheduling.scheduleTimeoutSeconds makes a job give its places "
            "back, with any scheduler"
        ),
    }
    remarks.drop_set(path, policy, texts)


def _autoscaler(metrics: object, job: Manifest, remarks: Remarks) -> list[Manifest]:
    spec, metadata = job["spec"], job["metadata"]
    if not metrics:
        return []
    if "minReplicas" not in spec or "name" not in metadata:
        remarks.drop(METRICS, "an autoscaler needs a job with a name, and of no fixed size")
        return []
    remarks.add(
        METRICS,
        "becomes a HorizontalPodAutoscaler of its own, which training-operator made itself. It "
        "is not deleted with the job: delete both",
    )
    target = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"]}
    return [
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata},
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": spec["minReplicas"],
                "maxReplicas": spec["maxReplicas"],
                "metrics": metrics,
            },
        }
    ]
