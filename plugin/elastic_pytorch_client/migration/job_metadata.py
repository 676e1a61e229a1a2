"""A job's own metadata, without those of the API server and controllers; and its manager."""

import re
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks

Manifest = dict[str, Any]

LONGEST_NAME = 45
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
KEPT = ("name", "generateName", "namespace", "labels", "annotations")
NOT_KEPT_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def migrate_metadata(manifest: Mapping[str, Any], remarks: Remarks) -> Manifest:
    old = manifest.get("metadata") or {}
    metadata = {key: old[key] for key in KEPT if old.get(key)}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    if "name" in metadata and (len(name) > LONGEST_NAME or not NAME.match(name)):
        raise CannotMigrate(
            "metadata.name",
            f"must have at most {LONGEST_NAME} characters of a-z, 0-9 and -, and begin with a "
            "letter: pods and hosts are named after it",
        )
    if not name:
        raise CannotMigrate("metadata.name", "is missing")
    annotations = dict(old.get("annotations") or {})
    for key in NOT_KEPT_ANNOTATIONS:
        annotations.pop(key, None)
    labels = dict(old.get("labels") or {})
    if QUEUE_LABEL in labels:
        stays = "stays: the operator asks Kueue for quota if its chart sets kueue.enabled"
        remarks.add(f"metadata.labels[{QUEUE_LABEL}]", stays)
    for key, value in (("labels", labels), ("annotations", annotations)):
        metadata.pop(key, None)
        if value:
            metadata[key] = value
    return metadata


def drop_manager(path: str, manager: str | None, own_controller: str, remarks: Remarks) -> None:
    """Reports that another manager, such as MultiKueue, does not stay."""
    if manager and manager != own_controller:
        text = "is dropped: it does not know this kind of job, which would never start"
        remarks.add(path, f"{manager} {text}")


def suspension(
    path: str, suspended: object, metadata: Mapping[str, Any], remarks: Remarks
) -> Manifest:
    if not suspended:
        return {}
    if QUEUE_LABEL in (metadata.get("labels") or {}):
        remarks.add(
            path,
            "is kept, but Kueue does not change it in this kind of job: set it to false if Kueue "
            "set it",
        )
    return {"suspend": True}
