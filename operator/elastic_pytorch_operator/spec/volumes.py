"""The volumes of pods beside their template's: /dev/shm, and claims for a whole job. Pure.

All workers share each claim, `{name}-{job}`. Unlike a StatefulSet, a job takes no claim of that
name that is not its own: it would write into another job's checkpoints.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, append
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.spec.resources import uses_accelerators

SHARED_MEMORY_FOLDER = "/dev/shm"
SHARED_MEMORY_VOLUME = "elastic-pytorch-shared-memory"
DELETE = "Delete"  # sharedVolumeClaimRetentionPolicy.whenDeleted


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """One of `spec.sharedVolumeClaims`: the volume's name, and a PersistentVolumeClaimSpec."""

    name: str
    spec: Manifest

    def claim_name(self, job: str) -> str:
        return f"{self.name}-{job}"


def add_shared_memory(spec: MutableManifest, container: MutableManifest, size: str) -> None:
    """Gives a pod's training container a /dev/shm, unless the template has decided on it.

    Without a size, only a container that requests accelerators gets one, up to its memory limit.
    """
    wanted = bool(parse_quantity(size)) if size else uses_accelerators(container)
    if not wanted or spec.get("hostIPC") or any(map(_decides, container.get("volumeMounts") or ())):
        return
    medium = {"medium": "Memory"}
    volume = {
        "name": SHARED_MEMORY_VOLUME,
        "emptyDir": {**medium, "sizeLimit": size} if size else medium,
    }
    append(spec, "volumes", volume)
    mount = {"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_FOLDER}
    append(container, "volumeMounts", mount)


def _decides(mount: Mapping[str, Any]) -> bool:
    return posixpath.normpath(str(mount.get("mountPath"))) in (
        SHARED_MEMORY_FOLDER,
        posixpath.dirname(SHARED_MEMORY_FOLDER),
    )


def add_claim_volumes(spec: dict[str, Any], templates: Sequence[ClaimTemplate], job: str) -> None:
    own = {volume.get("name") for volume in spec.get("volumes") or ()}
    added = (
        {"name": template.name, "persistentVolumeClaim": {"claimName": template.claim_name(job)}}
        for template in templates
        if template.name not in own
    )
    append(spec, "volumes", *added)
