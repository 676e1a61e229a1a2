"""TrainJob (trainer.kubeflow.org/v1alpha1), as Kubeflow Trainer 2.0 to 2.3 treats it."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.job_metadata import (
    QUEUE_LABEL,
    drop_manager,
    migrate_metadata,
    suspension,
)
from elastic_pytorch_client.migration.job_size import COUNTED_BY_COMMAND, process_count
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.runtime import (
    TORCH_DISTRIBUTED,
    TRAINER_CONTAINER,
    apply_patches,
    find_runtime,
    merge_by_key,
    read_runtime,
)
from elastic_pytorch_client.migration.sources.training_pods import (
    TrainingPods,
    make_job,
    read_container,
    shared_claims,
)
from elastic_pytorch_client.migration.template import clean_template, find_training_container

Manifest = dict[str, Any]

API_GROUP, KIND = "trainer.kubeflow.org", "TrainJob"
OWN_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
PATH = "spec.trainer"


def migrate_trainjob(
    manifest: Mapping[str, Any],
    remarks: Remarks,
    entrypoint: Sequence[str],
    runtimes: Sequence[Mapping[str, Any]],
) -> list[Manifest]:
    spec = manifest.get("spec") or {}
    trainer = spec.get("trainer") or {}
    found = find_runtime(spec.get("runtimeRef") or {}, runtimes)
    runtime = read_runtime(found, remarks)
    apply_patches(spec, runtime.job, runtime.template, remarks)
    template = clean_template("spec.runtimeRef", runtime.template, remarks)
    _, container = find_training_container("spec.runtimeRef", template["spec"], TRAINER_CONTAINER)
    _apply_trainer(trainer, container)
    if not container.get("image"):
        name = (spec.get("runtimeRef") or {}).get("name")
        known = (
            "differs with Trainer's release" if found is TORCH_DISTRIBUTED else "is missing there"
        )
        raise CannotMigrate(
            f"{PATH}.image",
            f"is missing, and the image of the runtime {name} {known}: write it into the "
            "TrainJob, or pass the runtime with --runtime",
        )
    pods = read_container(PATH, template, container, remarks, entrypoint)
    replicas = int(trainer.get("numNodes") or runtime.nodes)
    metadata = migrate_metadata(_with_labels(manifest, spec), remarks)
    processes = _processes(trainer, runtime.processes, container, pods, remarks)
    policy: Manifest = (
        {} if runtime.backoff_limit is None else {"backoffLimit": runtime.backoff_limit}
    )
    if pods.max_restarts is not None:
        policy["maxFailures"] = pods.max_restarts
    job = make_job(
        metadata,
        pods,
        {"replicas": replicas},
        {} if processes is None else {"nprocPerNode": processes},
        suspension("spec.suspend", spec.get("suspend"), metadata, remarks),
        {field: spec[field] for field in ("activeDeadlineSeconds",) if spec.get(field)},
        {"failurePolicy": policy} if policy else {},
        shared_claims(runtime.claims, pods, remarks),
        _place_together(runtime.gang, metadata, remarks),
    )
    drop_manager("spec.managedBy", spec.get("managedBy"), OWN_CONTROLLER, remarks)
    _say_what_is_dropped(spec, remarks)
    return [job]


def _place_together(gang: str, metadata: Mapping[str, Any], remarks: Remarks) -> Manifest:
    """What a podGroupPolicy becomes; in a queue, Kueue already admits workers together."""
    if not gang or QUEUE_LABEL in (metadata.get("labels") or {}):
        return {}
    text = (
        f"the podGroupPolicy becomes spec.scheduling.gangScheduler: name {gang} in gangSchedulers "
        "of the operator's chart, or remove it"
    )
    remarks.add("spec.runtimeRef", text)
    return {"scheduling": {"gangScheduler": gang}}


def _apply_trainer(trainer: Mapping[str, Any], container: Manifest) -> None:
    for field in ("image", "command", "args"):
        if trainer.get(field):
            container[field] = copy.deepcopy(trainer[field])
    if trainer.get("env"):
        container["env"] = merge_by_key(container.get("env") or (), trainer["env"], "name")
    if trainer.get("resourcesPerNode"):
        container["resources"] = copy.deepcopy(trainer["resourcesPerNode"])


def _with_labels(manifest: Mapping[str, Any], spec: Mapping[str, Any]) -> Manifest:
    """The TrainJob with the JobSet's labels and annotations: in `spec` to 2.1, then patches."""
    metadata = dict(manifest.get("metadata") or {})
    patches = [
        ((patch.get("trainingRuntimeSpec") or {}).get("template") or {})
        for patch in spec.get("runtimePatches") or ()
    ]
    for of_jobset in (*(patch.get("metadata") or {} for patch in patches), spec):
        for field in ("labels", "annotations"):
            if of_jobset.get(field):
                metadata[field] = {**of_jobset[field], **(metadata.get(field) or {})}
    return {**manifest, "metadata": metadata}


def _processes(
    trainer: Mapping[str, Any],
    of_runtime: str,
    container: Mapping[str, Any],
    pods: TrainingPods,
    remarks: Remarks,
) -> int | str | None:
    """As Trainer's torch plugin: `auto` is the GPUs, else the CPUs that are asked for."""
    path, started_by = f"{PATH}.numProcPerNode", pods.launch.by
    if pods.launch.counted:
        remarks.add(f"{PATH}.command", COUNTED_BY_COMMAND)
        return None
    given = str(trainer.get("numProcPerNode") or of_runtime or "auto")
    if "nproc-per-node" in pods.options and started_by == "torchrun":
        given, path = pods.options["nproc-per-node"], f"{PATH}.command, --nproc-per-node"
    asked = pods.accelerators
    if given == "auto" and not asked and started_by != "python" and not _other_gpus(container):
        cores = _cores(container)
        if cores <= 1:
            return None
        text = (
            f"Trainer starts one process for each of the {cores} CPUs that the container asks "
            f"for: nprocPerNode is {cores}"
        )
        remarks.add(path, text)
        return cores
    return process_count(path, given, started_by=started_by, accelerators=asked, remarks=remarks)


def _other_gpus(container: Mapping[str, Any]) -> bool:
    """Whether it asks for GPUs that the operator does not count."""
    resources = container.get("resources") or {}
    return any(
        "gpu" in name.lower()
        for kind in ("limits", "requests")
        for name in resources.get(kind) or {}
    )


def _cores(container: Mapping[str, Any]) -> int:
    """The CPUs that are asked for, rounded up as by Kubernetes' Quantity.Value."""
    resources = container.get("resources") or {}
    asked = (
        (resources.get("requests") or {}).get("cpu")
        or (resources.get("limits") or {}).get("cpu")
        or "0"
    )
    text = str(asked)
    try:
        return -(-int(text[:-1]) // 1000) if text.endswith("m") else -int(-float(text) // 1)
    except ValueError:
        return 0


def _say_what_is_dropped(spec: Mapping[str, Any], remarks: Remarks) -> None:
    initializer = spec.get("initializer") or {}
    for part in ("dataset", "model"):
        if initializer.get(part) is not None:
            remarks.add(
                f"spec.initializer.{part}",
                f"{initializer[part].get('storageUri') or 'it'} is not downloaded. Run a Job "
                "before that fills a volume, and mount that "
                "volume at the path the script reads: spec.sharedVolumeClaims makes one for the "
                "job",
            )
