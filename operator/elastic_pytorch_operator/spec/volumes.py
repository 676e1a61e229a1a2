"""The volumes that pods have beside those of their template: /dev/shm, and the claims that are created with a job. Pure.

A container runtime gives each container a /dev/shm of 64 MiB. DataLoader workers pass their batches
through it, and NCCL its buffers between the processes of a node. A larger one is a memory-backed
emptyDir; what is written there counts as memory of the container.

All workers share each claim. It is `{name}-{job}`, at most 109 characters of the 253 that the name
of a PersistentVolumeClaim may have. Kubernetes' StatefulSet takes any claim of the right name. Here
a claim must also say that it is the job's: a job that is created with another job's claim would
write into that job's checkpoints.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.spec.resources import uses_accelerators

SHARED_MEMORY_FOLDER = "/dev/shm"
SHARED_MEMORY_VOLUME = "elastic-pytorch-shared-memory"
DELETE = "Delete"  # sharedVolumeClaimRetentionPolicy.whenDeleted


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """One of `spec.sharedVolumeClaims`.

    Attributes:
        name: also of the pods' volume.
        spec: a PersistentVolumeClaimSpec.
    """

    name: str
    spec: Manifest

    def claim_name(self, job: str) -> str:
        """The name of the claim that a job has from it."""
        return f"{self.name}-{job}"


def add_shared_memory(spec: MutableManifest, container: MutableManifest, size: str) -> None:
    """Gives a pod's training container a /dev/shm, unless the template has decided on it.

    Args:
        spec: the pod's, which is changed.
        container: the one of its containers that trains; changed as well.
        size: the most that it may hold; empty: as much as the container's memory limit and the node
            allow, for a container that asks for accelerators.
    """
    wanted = bool(parse_quantity(size)) if size else uses_accelerators(container)
    if not wanted or spec.get("hostIPC") or any(map(_decides, container.get("volumeMounts") or ())):
        return
    medium = {"medium": "Memory"}
    volume = {
        "name": SHARED_MEMORY_VOLUME,
        "emptyDir": {**medium, "sizeLimit": size} if size else medium,
    }
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or []),
        {"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_FOLDER},
    ]


def _decides(mount: Mapping[str, Any]) -> bool:
    return posixpath.normpath(str(mount.get("mountPath"))) in (
        SHARED_MEMORY_FOLDER,
        posixpath.dirname(SHARED_MEMORY_FOLDER),
    )


def add_claim_volumes(spec: dict[str, Any], templates: Sequence[ClaimTemplate], job: str) -> None:
    """Gives a pod the job's claims as volumes, each of its template's name.

    A volume of that name in the pod stays as it is.
    """
    own = {volume.get("name") for volume in spec.get("volumes") or ()}
    added = [
        {"name": template.name, "persistentVolumeClaim": {"claimName": template.claim_name(job)}}
        for template in templates
        if template.name not in own
    ]
    if added:
        spec["volumes"] = [*(spec.get("volumes") or []), *added]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a job cannot use the claim that has the name of one of its own.

    Attributes:
        passes: the claim is about to be deleted, by its deletion or with the job that owns it.
    """

    message: str
    passes: bool


def find_conflict(claim: Manifest, job: str, uid: str) -> Conflict | None:
    """Judges an existing claim.

    It is the job's own if the job owns it, or if it was created for a job of that name and has no
    owner.
    """
    metadata = claim["metadata"]
    owners, labels = metadata.get("ownerReferences") or (), metadata.get("labels") or {}
    earlier = any(
        owner.get("kind") == names.KIND and owner.get("name") == job and owner.get("uid") != uid
        for owner in owners
    )
    if metadata.get("deletionTimestamp") or earlier:
        return Conflict(
            f"PersistentVolumeClaim {metadata['name']} is being deleted; pods are created after that, with a new one",
            True,
        )
    if any(owner.get("uid") == uid for owner in owners):
        return None
    if (
        not owners
        and labels.get(names.LABEL_JOB_NAME) == job
        and labels.get(names.LABEL_MANAGED_BY) == names.OPERATOR
    ):
        return None
    message = (
        f"PersistentVolumeClaim {metadata['name']} exists and was not created for this job: create the job again with "
        "another name in spec.sharedVolumeClaims, or with that claim as a volume of spec.template"
    )
    return Conflict(message, False)
