"""Objects of kinds that migration does not read: passed on, or refused."""

import difflib
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration.remarks import Remark
from elastic_pytorch_client.migration.sources import pytorchjob, trainjob

_OWN_GROUP = (
    "{0} has its own way to form a group. Write an ElasticPyTorchJob with the script in `args`, "
    "if it uses torch.distributed"
)
_RAY = (
    "Ray's controller starts the processes, and not torchrun. Write an ElasticPyTorchJob if the "
    "script trains without Ray Train"
)
_WORKFLOW = (
    "a job inside of a workflow is not migrated. Take it out into a file, migrate that, and put "
    "the result in its place"
)
_SET = (
    "is not migrated, and can hold anything. If its pods call torchrun, write an "
    "ElasticPyTorchJob with the script in `args`"
)
TRAINING = {
    "MPIJob": (
        "mpirun starts the processes, and not torchrun. Write an ElasticPyTorchJob if the script "
        "can use the gloo or nccl backend"
    ),
    "TFJob": "TensorFlow does not use torch.distributed, so there is nothing to migrate",
    "PaddleJob": _OWN_GROUP.format("PaddlePaddle"),
    "XGBoostJob": _OWN_GROUP.format("XGBoost"),
    "MXJob": _OWN_GROUP.format("MXNet"),
    "JAXJob": _OWN_GROUP.format("JAX"),
    "RayJob": _RAY,
    "RayCluster": _RAY,
    "RayService": _RAY,
    "LeaderWorkerSet": _SET,
    "Workflow": _WORKFLOW,
    "CronWorkflow": _WORKFLOW,
    "WorkflowTemplate": _WORKFLOW,
    "ClusterWorkflowTemplate": _WORKFLOW,
    "PipelineRun": _WORKFLOW,
    "Experiment": (
        "Katib's template of a trial is not migrated. Take it out into a file, migrate that, and "
        "put the result in its place"
    ),
}
GROUPS = {
    pytorchjob.KIND: pytorchjob.API_GROUP,
    trainjob.KIND: trainjob.API_GROUP,
    names.KIND: names.GROUP,
}
LEAST_LIKENESS = 0.85  # PyTorchJobs is 0.95 like PyTorchJob, MPIJob half


def refusal(manifest: Mapping[str, Any]) -> Remark | None:
    """Why such an object cannot be passed on; None: it can."""
    kind, version = str(manifest.get("kind")), str(manifest.get("apiVersion", ""))
    if kind in TRAINING:
        return Remark("kind", TRAINING[kind])
    if kind in GROUPS:
        if version.partition("/")[0] == GROUPS[kind]:
            return None
        return Remark(
            "apiVersion", f"{version or 'none'} has no {kind}: the group is {GROUPS[kind]}"
        )
    known = {name.lower(): name for name in GROUPS}
    found = difflib.get_close_matches(kind.lower(), known, n=1, cutoff=LEAST_LIKENESS)
    return (
        Remark("kind", f"{kind} is not known: write {known[found[0]]}, if it is one")
        if found
        else None
    )


def passed_on(manifest: Mapping[str, Any]) -> list[Remark]:
    if manifest.get("kind") == names.KIND:
        return []
    text = "is none that is migrated: the object is written as it is"
    if "etcd" in str((manifest.get("metadata") or {}).get("name")):
        text += ". No ElasticPyTorchJob needs an etcd: leave it out, unless others use it"
    return [Remark("kind", text)]
