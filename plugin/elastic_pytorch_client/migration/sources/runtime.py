"""(Cluster)TrainingRuntime (trainer.kubeflow.org/v1alpha1), and a TrainJob's patches."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.training_pods import claims_of_policies

Manifest = dict[str, Any]

KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER_JOB = TRAINER_CONTAINER = "node"
# Kubeflow's torch-distributed, without the image, which differs with its release.
TORCH_DISTRIBUTED: Manifest = {
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": TRAINER_JOB,
                        "template": {
                            "metadata": {"labels": {ANCESTOR: "trainer"}},
                            "spec": {
                                "template": {"spec": {"containers": [{"name": TRAINER_CONTAINER}]}}
                            },
                        },
                    }
                ]
            }
        },
    }
}


@dataclass(frozen=True, slots=True)
class Runtime:
    nodes: int
    processes: str  # in each node; empty: as many as the trainer counts
    job: str
    template: Manifest
    backoff_limit: int | None
    gang: str  # the scheduler that places its pods together; empty: none
    # path, name and spec of those that its JobSet makes
    claims: Sequence[tuple[str, str, Mapping[str, Any]]]


def find_runtime(
    reference: Mapping[str, Any], runtimes: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    kind, name = reference.get("kind") or KINDS[0], reference.get("name")
    for runtime in runtimes:
        if runtime.get("kind") == kind and (runtime.get("metadata") or {}).get("name") == name:
            return runtime
    if name == "torch-distributed" and kind == KINDS[0]:
        return TORCH_DISTRIBUTED
    raise CannotMigrate(
        "spec.runtimeRef",
        f"{kind} {name} is not known: save it (`kubectl get {kind.lower()} {name} -o yaml > "
        "runtime.yaml`) and pass it with "
        "--runtime runtime.yaml",
    )


def read_runtime(runtime: Mapping[str, Any], remarks: Remarks) -> Runtime:
    spec = runtime.get("spec") or {}
    policy = spec.get("mlPolicy") or {}
    if "torch" not in policy:
        others = ", ".join(sorted(set(policy) - {"numNodes"})) or "none"
        raise CannotMigrate(
            "spec.runtimeRef",
            f"the runtime has no mlPolicy.torch (it has {others}): only torch can be migrated",
        )
    jobs = ((spec.get("template") or {}).get("spec") or {}).get("replicatedJobs") or []
    trainer = next((job for job in jobs if _ancestor(job) == "trainer"), None)
    if trainer is None:
        raise CannotMigrate(
            "spec.runtimeRef",
            f"the runtime has no replicated job with the label {ANCESTOR}: trainer",
        )
    for job in jobs:
        if job is not trainer:
            text = (
                f"the runtime's job {job.get('name')} is dropped. Run it before, as a Job that "
                "fills the volume"
            )
            remarks.add("spec.runtimeRef", text)
    together = spec.get("podGroupPolicy") or {}
    job_spec = (trainer.get("template") or {}).get("spec") or {}
    return Runtime(
        nodes=int(policy.get("numNodes") or 1),
        processes=str((policy["torch"] or {}).get("numProcPerNode") or ""),
        job=str(trainer.get("name")),
        template=copy.deepcopy(dict(job_spec.get("template") or {})),
        backoff_limit=job_spec.get("backoffLimit"),
        gang="Coscheduling" if "coscheduling" in together else "Kubernetes" if together else "",
        claims=claims_of_policies(
            "spec.runtimeRef", (spec.get("template") or {}).get("spec") or {}
        ),
    )


def apply_patches(spec: Mapping[str, Any], job: str, template: Manifest, remarks: Remarks) -> None:
    """Applies a TrainJob's patches to a pod template, in the form of each Trainer release."""
    for path, patch in _patches(spec, job, remarks):
        for field, value in (patch.get("metadata") or {}).items():
            if field in ("labels", "annotations"):
                metadata = template.setdefault("metadata", {})
                metadata[field] = {**(metadata.get(field) or {}), **value}
        pod = template.setdefault("spec", {})
        for field, value in (patch.get("spec") or {}).items():
            if field in ("containers", "initContainers"):
                _patch_containers(f"{path}.{field}", pod, field, value, remarks)
            elif field == "nodeSelector":
                pod[field] = {**(pod.get(field) or {}), **value}
            elif field in ("volumes", "imagePullSecrets", "schedulingGates"):
                pod[field] = merge_by_key(pod.get(field) or (), value, "name")
            else:
                pod[field] = copy.deepcopy(value)


def _patches(
    spec: Mapping[str, Any], job: str, remarks: Remarks
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, patch in enumerate(spec.get("runtimePatches") or ()):  # Trainer 2.2 and newer
        runtime = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        for replicated in runtime.get("replicatedJobs") or ():
            path = f"spec.runtimePatches[{place}]"
            of_job = replicated.get("template") or {}
            inner = (of_job.get("spec") or {}).get("template") or {}
            if of_job.get("metadata"):
                remarks.add(
                    path,
                    "metadata of the Job is dropped: there is none. The pods' metadata go into "
                    "spec.template",
                )
            if replicated.get("name") == job:
                yield path, inner
            else:
                remarks.add(
                    path, f"the patch of {replicated.get('name')} is dropped, as that job is"
                )
    for field in ("podTemplateOverrides", "podSpecOverrides"):  # 2.1, 2.0
        for place, override in enumerate(spec.get(field) or ()):
            targets = [target.get("name") for target in override.get("targetJobs") or ()]
            if job not in targets:
                remarks.add(
                    f"spec.{field}[{place}]", f"is dropped, as {', '.join(map(str, targets))} is"
                )
            elif field == "podTemplateOverrides":
                yield f"spec.{field}[{place}]", override
            else:
                yield (
                    f"spec.{field}[{place}]",
                    {
                        "spec": {
                            key: value for key, value in override.items() if key != "targetJobs"
                        }
                    },
                )


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
            continue
        for key, value in patch.items():
            if key == "env":
                container[key] = merge_by_key(container.get(key) or (), value, "name")
            elif key == "volumeMounts":
                container[key] = merge_by_key(container.get(key) or (), value, "mountPath")
            else:
                container[key] = copy.deepcopy(value)


def merge_by_key(
    own: Sequence[Mapping[str, Any]], more: Sequence[Mapping[str, Any]], key: str
) -> list[Manifest]:
    merged = {item.get(key): dict(item) for item in own}
    for item in more:
        merged[item.get(key)] = copy.deepcopy(dict(item))
    return list(merged.values())


def _ancestor(job: Mapping[str, Any]) -> str | None:
    found = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return found.get(ANCESTOR)
