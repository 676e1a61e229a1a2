"""PyTorchJob (kubeflow.org/v1), as its training-operator 1.9 treats it."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration.failure_policy import failure_policy
from elastic_pytorch_client.migration.job_metadata import (
    QUEUE_LABEL,
    drop_manager,
    migrate_metadata,
    suspension,
)
from elastic_pytorch_client.migration.job_size import (
    COUNTED_BY_COMMAND,
    nnodes_bounds,
    process_count,
)
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.replica_templates import merge_templates
from elastic_pytorch_client.migration.sources.training_pods import (
    TrainingPods,
    make_job,
    read_container,
    say_hosts,
    set_fields,
)
from elastic_pytorch_client.migration.template import clean_template, find_training_container

Manifest = dict[str, Any]

API_GROUP, KIND = "kubeflow.org", "PyTorchJob"
REPLICAS = "spec.pytorchReplicaSpecs"
CONTAINER = "pytorch"
OWN_CONTROLLER = "kubeflow.org/training-operator"
DEFAULT_RESTART_POLICY = "OnFailure"
DEFAULT_PROCESSES = "auto"


@dataclass(frozen=True, slots=True)
class Replica:
    count: int
    pods: TrainingPods
    restart_policy: str


def migrate_pytorchjob(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Manifest]:
    spec = manifest.get("spec") or {}
    master, worker = _replicas(spec, remarks, entrypoint)
    base = worker or master
    assert base is not None  # or _replicas raises
    pods = base.pods
    if master is not None and worker is not None:
        merged = merge_templates(
            f"{REPLICAS}.Master.template", master.pods.template, pods.template, remarks
        )
        pods.template.update(merged)
    total = sum(replica.count for replica in (master, worker) if replica is not None)
    role = "Worker" if worker is not None else "Master"
    sizes = _sizes(spec, total, base, remarks)
    metadata = migrate_metadata(manifest, remarks)
    run_policy = spec.get("runPolicy") or {}
    policy = _failure_policy(spec, role, base, remarks)
    processes = _processes(spec, base, role, remarks)
    say_hosts(REPLICAS, metadata.get("name"), r"(master|worker)-[0-9]+\b", pods, remarks)
    if pods.launch.by == "python" and master is None and total > 1:
        remarks.add(
            REPLICAS,
            "without a Master, each worker trained by itself. Now all workers form one group",
        )
    job = make_job(
        metadata,
        pods,
        sizes,
        {} if processes is None else {"nprocPerNode": processes},
        _run_policy(run_policy, metadata, pods.template, sizes, remarks),
        {"failurePolicy": policy} if policy else {},
    )
    return [job, *_autoscaler(spec, job, remarks)]


def _replicas(
    spec: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> tuple[Replica | None, Replica | None]:
    specs = {
        str(name).capitalize(): replica or {}
        for name, replica in (spec.get("pytorchReplicaSpecs") or {}).items()
    }
    if not specs or set(specs) - {"Master", "Worker"}:
        raise CannotMigrate(REPLICAS, "must have Worker, Master, or both, and nothing else")
    worker = _replica("Worker", specs["Worker"], remarks, entrypoint) if "Worker" in specs else None
    own = Remarks()
    master = _replica("Master", specs["Master"], own, entrypoint) if "Master" in specs else None
    remarks.add_unsaid(own)
    if master is not None and worker is not None and master.restart_policy != worker.restart_policy:
        text = (
            f"{master.restart_policy} differs from the Worker's. Workers are alike, and "
            f"{worker.restart_policy} is taken"
        )
        remarks.add(f"{REPLICAS}.Master.restartPolicy", text)
    return master, worker


def _replica(
    role: str, replica: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> Replica:
    path = f"{REPLICAS}.{role}.template"
    template = clean_template(path, replica.get("template") or {}, remarks)
    place, container = find_training_container(path, template["spec"], CONTAINER)
    path = f"{path}.spec.containers[{container.get('name', place)}]"
    pods, count = (
        read_container(path, template, container, remarks, entrypoint),
        replica.get("replicas"),
    )
    return Replica(
        count=1 if count is None else int(count),
        pods=pods,
        restart_policy=replica.get("restartPolicy") or DEFAULT_RESTART_POLICY,
    )


def _sizes(spec: Mapping[str, Any], total: int, base: Replica, remarks: Remarks) -> Manifest:
    """`replicas` and the bounds; torchrun's `--nnodes` wins over the elasticPolicy, as there."""
    elastic, options = spec.get("elasticPolicy"), base.pods.options
    minimum, maximum = total, total
    if elastic is not None:
        given = [
            bound
            for bound in (elastic.get("minReplicas"), elastic.get("maxReplicas"))
            if bound is not None
        ]
        minimum, maximum = (int(given[0]), int(given[-1])) if given else (base.count, base.count)
    if (
        (bounds := nnodes_bounds(options.get("nnodes", "")))
        and bounds != (minimum, maximum)
        and (bounds[1] > 1 or total == 1)
    ):
        text = f"torchrun's --nnodes={options['nnodes']} is taken, as torchrun did"
        if minimum < maximum and bounds[0] == bounds[1]:
            text += (
                f". The elasticPolicy of {minimum} to {maximum} had no effect: set minReplicas "
                "and maxReplicas to be elastic"
            )
        remarks.add(REPLICAS, text)
        minimum, maximum = bounds
    alone = (
        "standalone" in options
        or (elastic or {}).get("standalone")
        or nnodes_bounds(options.get("nnodes", "")) == (1, 1)
    )
    if alone and total > 1:
        remarks.add(
            REPLICAS,
            f"each of the {total} pods trained by itself (standalone). Now they form one group of "
            f"{total} workers",
        )
    if elastic is not None:
        _rendezvous(elastic, remarks)
    if minimum == maximum == total:
        return {"replicas": total}
    replicas = min(max(total, minimum), maximum)
    if replicas != total:
        remarks.add(
            REPLICAS,
            f"{total} replicas are outside of {minimum} to {maximum}: replicas is {replicas}",
        )
    if minimum == maximum:
        return {"replicas": replicas}
    return {"replicas": replicas, "minReplicas": minimum, "maxReplicas": maximum}


def _rendezvous(elastic: Mapping[str, Any], remarks: Remarks) -> None:
    fields = [
        field for field in ("rdzvPort", "rdzvHost", "rdzvId") if elastic.get(field) is not None
    ]
    if elastic.get("rdzvBackend") in ("etcd", "etcd-v2"):
        remarks.add(
            "spec.elasticPolicy.rdzvBackend",
            "etcd is not needed: the operator decides who is in the group",
        )
    if fields:
        verb = "is" if len(fields) == 1 else "are"
        remarks.add(
            "spec.elasticPolicy",
            f"{', '.join(fields)} {verb} dropped: the operator tells the workers where to meet",
        )
    if elastic.get("rdzvConf"):
        text = (
            "is dropped. For last_call_timeout, set spec.resizePolicy.settleSeconds. A job below "
            "its minimum waits, it does not time out"
        )
        remarks.add("spec.elasticPolicy.rdzvConf", text)


def _processes(
    spec: Mapping[str, Any], replica: Replica, role: str, remarks: Remarks
) -> int | str | None:
    path = f"{REPLICAS}.{role}.template"
    pods = replica.pods
    if pods.launch.counted:
        remarks.add(path, COUNTED_BY_COMMAND)
        return None
    given = spec.get("nprocPerNode")
    source = "spec.nprocPerNode"
    if given is None and (spec.get("elasticPolicy") or {}).get("nProcPerNode") is not None:
        given, source = spec["elasticPolicy"]["nProcPerNode"], "spec.elasticPolicy.nProcPerNode"
    if "nproc-per-node" in pods.options and pods.launch.by == "torchrun":
        given, source = pods.options["nproc-per-node"], f"{path}, --nproc-per-node"
    return process_count(
        source,
        str(given) if given is not None else DEFAULT_PROCESSES,
        started_by=pods.launch.by,
        accelerators=pods.accelerators,
        remarks=remarks,
    )


def _failure_policy(
    spec: Mapping[str, Any], role: str, replica: Replica, remarks: Remarks
) -> Manifest:
    options = replica.pods.options
    restarts = options.get("max-restarts", (spec.get("elasticPolicy") or {}).get("maxRestarts"))
    source = "spec.runPolicy.backoffLimit" if restarts is None else "spec.elasticPolicy.maxRestarts"
    if "max-restarts" in options:
        source = f"{REPLICAS}.{role}.template, --max-restarts"
    return failure_policy(
        f"{REPLICAS}.{role}.restartPolicy",
        source,
        replica.restart_policy,
        backoff_limit=(spec.get("runPolicy") or {}).get("backoffLimit"),
        max_restarts=int(str(restarts)) if str(restarts).isdecimal() else None,
        launch=replica.pods.launch,
        remarks=remarks,
    )


def _run_policy(
    policy: Mapping[str, Any],
    metadata: Manifest,
    template: Manifest,
    sizes: Manifest,
    remarks: Remarks,
) -> Manifest:
    spec: Manifest = suspension("spec.runPolicy.suspend", policy.get("suspend"), metadata, remarks)
    # The default there; here it is Running.
    spec["cleanPodPolicy"] = policy.get("cleanPodPolicy") or "None"
    spec |= set_fields(policy, "ttlSecondsAfterFinished", "activeDeadlineSeconds")
    drop_manager("spec.runPolicy.managedBy", policy.get("managedBy"), OWN_CONTROLLER, remarks)
    _scheduling(policy.get("schedulingPolicy") or {}, template, sizes, remarks)
    return spec


def _scheduling(
    policy: Mapping[str, Any], template: Manifest, sizes: Manifest, remarks: Remarks
) -> None:
    path = "spec.runPolicy.schedulingPolicy"
    pod = template["spec"]
    if policy.get("priorityClass") and not pod.get("priorityClassName"):
        pod["priorityClassName"] = policy["priorityClass"]
        remarks.add(
            f"{path}.priorityClass",
            "becomes the pods' priorityClassName; there it was the PodGroup's",
        )
    if policy.get("queue"):
        remarks.add(
            f"{path}.queue", f"is dropped. For a queue of Kueue, set the label {QUEUE_LABEL}"
        )
    if policy.get("minAvailable") is not None:
        least = sizes.get("minReplicas", sizes["replicas"])
        text = (
            "is dropped. With spec.scheduling.gangScheduler, the PodGroup has the size of the "
            f"least group that trains ({least})"
        )
        remarks.add(f"{path}.minAvailable", text)
    if policy.get("minResources"):
        remarks.add(
            f"{path}.minResources",
            "is dropped: spec.scheduling.gangScheduler computes it from the template's requests",
        )
    if policy.get("scheduleTimeoutSeconds"):
        text = (
            "is dropped. spec.scheduling.scheduleTimeoutSeconds makes a job give its places "
            "back, with any scheduler"
        )
        remarks.add(f"{path}.scheduleTimeoutSeconds", text)


def _autoscaler(spec: Mapping[str, Any], job: Manifest, remarks: Remarks) -> list[Manifest]:
    metrics = (spec.get("elasticPolicy") or {}).get("metrics")
    if not metrics:
        return []
    if "minReplicas" not in job["spec"]:
        remarks.add(
            "spec.elasticPolicy.metrics",
            "are dropped: the job has a fixed size, which no autoscaler can change",
        )
        return []
    if "name" not in job["metadata"]:
        remarks.add(
            "spec.elasticPolicy.metrics",
            "is dropped: a HorizontalPodAutoscaler needs the job's name, and generateName sets "
            "it later",
        )
        return []
    remarks.add(
        "spec.elasticPolicy.metrics",
        "becomes a HorizontalPodAutoscaler of its own, which training-operator made itself. It "
        "is not deleted with the job: delete both",
    )
    sizes = job["spec"]
    metadata = {
        key: job["metadata"][key] for key in ("name", "namespace") if key in job["metadata"]
    }
    target = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"]}
    return [
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": sizes["minReplicas"],
                "maxReplicas": sizes["maxReplicas"],
                "metrics": copy.deepcopy(metrics),
            },
        }
    ]
