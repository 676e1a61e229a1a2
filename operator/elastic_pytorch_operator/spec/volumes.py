"""The volumes that pods have beside those of their template: /dev/shm, and the claims that are created with a job. Pure.

A container runtime gives each container a /dev/shm of 64 MiB. DataLoader workers pass their batches through it, and NCCL its
buffers between the processes of a node. A larger one is a memory-backed emptyDir; what is written there counts as memory of
the container.

All workers share each claim. It is `{name}-{job}`, at most 109 characters of the 253 that the name of a PersistentVolumeClaim
may have. Kubernetes' StatefulSet takes any claim of the right name. Here a claim must also say that it is the job's: a job that
is created with another job's claim would write into that job's checkpoints.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.spec.resources import uses_accelerators

SHARED_MEMORY_FOLDER = "/dev/shm"
SHARED_MEMORY_VOLUME = "elastic-pytorch-shared-memory"
MAX_CLAIMS = 8  # as the schema has it
RETAIN, DELETE = "Retain", "Delete"  # sharedVolumeClaimRetentionPolicy.whenDeleted
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label, as the name of a pod's volume must be


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


def shared_memory_size(value: object) -> str:
    """`spec.sharedMemorySize` as text; empty if it is unset.

    Raises:
        ValueError: the value is no quantity, or a negative one.
    """
    if value is None:
        return ""
    amount = None if isinstance(value, bool) else parse_quantity(value)
    if amount is None or amount < 0:
        raise ValueError(f'must be a quantity such as 8Gi, or "0" for none, not {value!r}')
    return str(value)


def add_shared_memory(spec: MutableManifest, container: MutableManifest, size: str) -> None:
    """Gives a pod's training container a /dev/shm, unless the template has decided on it.

    Args:
        spec: the pod's, which is changed.
        container: the one of its containers that trains; changed as well.
        size: the most that it may hold; empty: as much as the container's memory limit and the node allow, for a container that asks
            for accelerators.
    """
    wanted = bool(parse_quantity(size)) if size else uses_accelerators(container)
    if not wanted or spec.get("hostIPC") or any(map(_decides, container.get("volumeMounts") or ())):
        return
    medium = {"medium": "Memory"}
    volume = {"name": SHARED_MEMORY_VOLUME, "emptyDir": {**medium, "sizeLimit": size} if size else medium}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or []),
        {"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_FOLDER},
    ]


def _decides(mount: Mapping[str, Any]) -> bool:
    return posixpath.normpath(str(mount.get("mountPath"))) in (SHARED_MEMORY_FOLDER, posixpath.dirname(SHARED_MEMORY_FOLDER))


def read_claim_templates(value: object) -> tuple[ClaimTemplate, ...]:
    """Reads `spec.sharedVolumeClaims`.

    Raises:
        ValueError: names the part that is wrong, and why.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_CLAIMS:
        raise ValueError(f"must be a list of at most {MAX_CLAIMS} claims")
    templates = tuple(_read(number, template) for number, template in enumerate(value))
    for number, template in enumerate(templates):
        if any(template.name == other.name for other in templates[:number]):
            raise ValueError(f"[{number}].metadata.name: Duplicate value: {template.name!r}")
    return templates


def keeps_claims(value: object) -> bool:
    """Whether claims stay when their job is deleted, as `spec.sharedVolumeClaimRetentionPolicy` says.

    Raises:
        ValueError: it is neither.
    """
    when = value.get("whenDeleted") if isinstance(value, Mapping) else value
    if not (when is None or when in (RETAIN, DELETE)) or not isinstance(value, Mapping | None):
        raise ValueError(f"whenDeleted must be {RETAIN} or {DELETE}, not {when!r}")
    return when != DELETE


def add_claim_volumes(spec: dict[str, Any], templates: Sequence[ClaimTemplate], job: str) -> None:
    """Gives a pod the job's claims as volumes, each of its template's name. A volume of that name in the pod stays as it is."""
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
    """Judges an existing claim. It is the job's own if the job owns it, or if it was created for a job of that name and has no owner.

    Args:
        claim: has the name of one of the job's own.
        job: its name.
        uid: of the job.
    """
    metadata = claim["metadata"]
    owners, labels = metadata.get("ownerReferences") or (), metadata.get("labels") or {}
    earlier = any(owner.get("kind") == names.KIND and owner.get("name") == job and owner.get("uid") != uid for owner in owners)
    if metadata.get("deletionTimestamp") or earlier:
        return Conflict(
            f"PersistentVolumeClaim {metadata['name']} is being deleted; pods are created after that, with a new one", True
        )
    if any(owner.get("uid") == uid for owner in owners):
        return None
    if not owners and labels.get(names.LABEL_JOB_NAME) == job and labels.get(names.LABEL_MANAGED_BY) == names.OPERATOR:
        return None
    message = (
        f"PersistentVolumeClaim {metadata['name']} exists and was not created for this job: create the job again with "
        "another name in spec.sharedVolumeClaims, or with that claim as a volume of spec.template"
    )
    return Conflict(message, False)


def _read(number: int, template: object) -> ClaimTemplate:
    if not isinstance(template, Mapping):
        raise ValueError(f"[{number}] must be an object")
    metadata, spec = template.get("metadata"), template.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise ValueError(f"[{number}] must have metadata with a name, and the spec of a PersistentVolumeClaim")
    name = metadata.get("name")
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        raise ValueError(f"[{number}].metadata.name must be a DNS label of at most 63 characters, not {name!r}")
    return ClaimTemplate(name, spec)
