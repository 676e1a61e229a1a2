"""TrainJob and its runtime (trainer.kubeflow.org/v1alpha1), as in Kubeflow Trainer 2.0 to 2.3."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.job_metadata import (
    gang_scheduling,
    migrate_metadata,
    run_fields,
    set_fields,
)
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.training_pods import (
    PROCESSES,
    TrainingPods,
    claims_of_policies,
    find_training_container,
    make_job,
    part,
    processes_of,
    read_training_pods,
    shared_claims,
)
from elastic_pytorch_client.migration.template import requested

Manifest = dict[str, Any]

API_GROUP, KIND = "trainer.kubeflow.org", "TrainJob"
PATH, REFERENCE = "spec.trainer", "spec.runtimeRef"
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER_JOB = TRAINER_CONTAINER = "node"
# Kubeflow's torch-distributed, without the image, which differs with its release.
TORCH_NODE: Manifest = {
    "metadata": {"labels": {ANCESTOR: "trainer"}},
    "spec": {"template": {"spec": {"containers": [{"name": TRAINER_CONTAINER}]}}},
}
TORCH_JOBS: Manifest = {"replicatedJobs": [{"name": TRAINER_JOB, "template": TORCH_NODE}]}
TORCH_DISTRIBUTED: Manifest = {
    "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": TORCH_JOBS}}
}
# Lists and mappings that a patch completes; it replaces others.
MERGED_BY = {"env": "name", "volumeMounts": "mountPath"} | dict.fromkeys(
    ("volumes", "imagePullSecrets", "schedulingGates"), "name"
)
COMPLETED = ("labels", "annotations", "nodeSelector")
# Fields of the container, and those of the trainer that set them.
OF_CONTAINER = {
    "image": "image",
    "command": "command",
    "args": "args",
    "env": "env",
    "resources": "resourcesPerNode",
}


def migrate_trainjob(
    manifest: Mapping[str, Any],
    remarks: Remarks,
    entrypoint: Sequence[str],
    runtimes: Sequence[Mapping[str, Any]],
) -> list[Manifest]:
    spec = part(manifest, "spec")
    trainer, reference = part(spec, "trainer"), part(spec, "runtimeRef")
    found = _find_runtime(reference, runtimes)
    runtime = part(found, "spec")
    node = _find_trainer(runtime, remarks)
    of_node = part(node, "template", "spec")
    template = copy.deepcopy(dict(part(of_node, "template")))
    _apply_patches(spec, str(node.get("name")), template, remarks)
    container = find_training_container(REFERENCE, part(template, "spec"), TRAINER_CONTAINER)
    own = {field: trainer[name] for field, name in OF_CONTAINER.items() if trainer.get(name)}
    _patch_container(container, own)
    if not container.get("image"):
        known = (
            "differs with Trainer's release" if found is TORCH_DISTRIBUTED else "is missing there"
        )
        raise CannotMigrate(
            f"{PATH}.image",
            f"is missing, and the image of the runtime {reference.get('name')} {known}: write it "
            "into the TrainJob, or pass the runtime with --runtime",
        )
    pods = read_training_pods(REFERENCE, template, remarks, entrypoint, TRAINER_CONTAINER, PATH)
    metadata = migrate_metadata(_with_labels(manifest, spec), remarks)
    policy = part(runtime, "mlPolicy")
    number = trainer.get("numProcPerNode") or part(policy, "torch").get("numProcPerNode") or "auto"
    processes = _processes(str(number), container, pods, remarks)
    fields = run_fields("spec", spec, metadata, remarks)
    limits = {"backoffLimit": of_node.get("backoffLimit"), "maxFailures": pods.max_restarts}
    claims = claims_of_policies(REFERENCE, part(runtime, "template", "spec"))
    shared = shared_claims(claims, pods, remarks)
    gang = _place_together(part(runtime, "podGroupPolicy"), metadata, remarks)
    _say_what_is_dropped(spec, remarks)
    replicas = int(trainer.get("numNodes") or policy.get("numNodes") or 1)
    job = make_job(
        metadata,
        pods,
        {"replicas": replicas},
        processes,
        fields,
        {"failurePolicy": set_fields(limits)},
        shared,
        gang,
    )
    return [job]


def _place_together(
    policy: Mapping[str, Any], metadata: Mapping[str, Any], remarks: Remarks
) -> Manifest:
    """What a podGroupPolicy becomes."""
    if not policy:
        return {}
    gang = "Coscheduling" if "coscheduling" in policy else "Kubernetes"
    return gang_scheduling(f"{REFERENCE}, podGroupPolicy", gang, metadata, remarks)


def _with_labels(manifest: Mapping[str, Any], spec: Mapping[str, Any]) -> Manifest:
    """The TrainJob with the JobSet's labels and annotations: in `spec` to 2.1, then patches."""
    metadata = dict(part(manifest, "metadata"))
    patches = (
        part(patch, "trainingRuntimeSpec", "template", "metadata")
        for patch in spec.get("runtimePatches") or ()
    )
    for of_jobset in (*patches, spec):
        for field in ("labels", "annotations"):
            if of_jobset.get(field):
                metadata[field] = {**of_jobset[field], **part(metadata, field)}
    return {**manifest, "metadata": metadata}


def _processes(
    given: str, container: Mapping[str, Any], pods: TrainingPods, remarks: Remarks
) -> Manifest:
    """As Trainer's torch plugin: `auto` is the GPUs, else the CPUs that are asked for."""
    path = f"{PATH}.numProcPerNode"
    wanted = requested(container)
    # Torchrun's own option wins, and GPUs that the operator does not count are some, too.
    is_told = pods.launch.counted or pods.launch.by == "python" or PROCESSES in pods.options
    if given != "auto" or is_told or any("gpu" in name.lower() for name in wanted):
        return processes_of(pods, remarks, path, given)
    cores = math.ceil(wanted.get("cpu", 0))  # as by Kubernetes' Quantity.Value
    if cores <= 1:
        return {}
    text = (
        f"Trainer starts one process for each of the {cores} CPUs that the container asks "
        f"for: nprocPerNode is {cores}"
    )
    remarks.add(path, text)
    return {"nprocPerNode": cores}


def _say_what_is_dropped(spec: Mapping[str, Any], remarks: Remarks) -> None:
    initializer = part(spec, "initializer")
    for source in ("dataset", "model"):
        if initializer.get(source) is not None:
            remarks.add(
                f"spec.initializer.{source}",
                f"{initializer[source].get('storageUri') or 'it'} is not downloaded. Run a Job "
                "before that fills a volume, and mount that volume at the path the script reads: "
                "spec.sharedVolumeClaims makes one for the job",
            )


def _find_runtime(
    reference: Mapping[str, Any], runtimes: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    kind, name = reference.get("kind") or RUNTIMES[0], reference.get("name")
    for runtime in runtimes:
        if runtime.get("kind") == kind and part(runtime, "metadata").get("name") == name:
            return runtime
    if name == "torch-distributed" and kind == RUNTIMES[0]:
        return TORCH_DISTRIBUTED
    raise CannotMigrate(
        REFERENCE,
        f"{kind} {name} is not known: save it (`kubectl get {kind.lower()} {name} -o yaml > "
        "runtime.yaml`) and pass it with --runtime runtime.yaml",
    )


def _find_trainer(spec: Mapping[str, Any], remarks: Remarks) -> Mapping[str, Any]:
    """The job of a runtime whose pods train; says that its others are dropped."""
    policy = part(spec, "mlPolicy")
    if "torch" not in policy:
        others = ", ".join(sorted(set(policy) - {"numNodes"})) or "none"
        raise CannotMigrate(
            REFERENCE,
            f"the runtime has no mlPolicy.torch (it has {others}): only torch can be migrated",
        )
    jobs = part(spec, "template", "spec").get("replicatedJobs") or []
    labels = ("template", "metadata", "labels")
    training = (job for job in jobs if part(job, *labels).get(ANCESTOR) == "trainer")
    trainer: Mapping[str, Any] | None = next(training, None)
    if trainer is None:
        raise CannotMigrate(
            REFERENCE,
            f"the runtime has no replicated job with the label {ANCESTOR}: trainer",
        )
    for job in jobs:
        if job is not trainer:
            text = (
                f"the runtime's job {job.get('name')} is dropped. Run it before, as a Job that "
                "fills the volume"
            )
            remarks.add(REFERENCE, text)
    return trainer


def _apply_patches(spec: Mapping[str, Any], job: str, template: Manifest, remarks: Remarks) -> None:
    """Applies a TrainJob's patches to a pod template, in the form of each Trainer release."""
    for path, targets, patch in _patches(spec, remarks):
        if job not in targets:
            named = ", ".join(map(str, targets))
            remarks.add(path, f"the patch of {named} is dropped, as that job is")
            continue
        for field, value in part(patch, "metadata").items():
            if field in COMPLETED:
                _patch_field(template.setdefault("metadata", {}), field, value)
        pod = template.setdefault("spec", {})
        for field, value in part(patch, "spec").items():
            if field in ("containers", "initContainers"):
                _patch_containers(f"{path}.{field}", pod, field, value, remarks)
            else:
                _patch_field(pod, field, value)


def _patch_container(container: Manifest, patch: Mapping[str, Any]) -> None:
    for field, value in patch.items():
        _patch_field(container, field, value)


def _patches(
    spec: Mapping[str, Any], remarks: Remarks
) -> Iterator[tuple[str, list[object], Mapping[str, Any]]]:
    """Each patch of a pod template, with the names of its jobs."""
    for place, patch in enumerate(spec.get("runtimePatches") or ()):  # Trainer 2.2 and newer
        runtime = part(patch, "trainingRuntimeSpec", "template", "spec")
        for replicated in runtime.get("replicatedJobs") or ():
            path = f"spec.runtimePatches[{place}]"
            of_job = part(replicated, "template")
            if of_job.get("metadata"):
                remarks.add(
                    path,
                    "metadata of the Job is dropped: there is none. The pods' metadata go into "
                    "spec.template",
                )
            yield path, [replicated.get("name")], part(of_job, "spec", "template")
    for field in ("podTemplateOverrides", "podSpecOverrides"):  # 2.1, 2.0
        for place, override in enumerate(spec.get(field) or ()):
            path, own = f"spec.{field}[{place}]", {**override}
            targets = [target.get("name") for target in own.pop("targetJobs", None) or ()]
            yield path, targets, own if field == "podTemplateOverrides" else {"spec": own}


def _patch_containers(
    path: str, pod: Manifest, field: str, patches: Sequence[Mapping[str, Any]], remarks: Remarks
) -> None:
    known = {container.get("name"): container for container in pod.get(field) or ()}
    for patch in patches:
        container = known.get(patch.get("name"))
        if container is None:
            remarks.add(
                path, f"{patch.get('name')} is dropped: the runtime has no container of that name"
            )
        else:
            _patch_container(container, patch)


def _patch_field(owner: Manifest, field: str, value: Any) -> None:
    if field in COMPLETED:
        value = {**(owner.get(field) or {}), **value}
    elif key := MERGED_BY.get(field):
        items = [*(owner.get(field) or ()), *value]
        value = list({item.get(key): item for item in items}.values())
    owner[field] = value
