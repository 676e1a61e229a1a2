"""A job's own metadata, without those of the API server and controllers; its queue and manager."""

import re
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks

Manifest = dict[str, Any]

LONGEST_NAME = 45
ADDED = "x" * 5  # as many characters as the API server adds to a generateName
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
KEPT = ("name", "generateName", "namespace")
NOT_KEPT_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)
PLACEMENT = "alpha.jobset.sigs.k8s.io/"
OWN_CONTROLLERS = (  # of the kinds that are migrated
    "kubeflow.org/training-operator",
    "trainer.kubeflow.org/trainjob-controller",
    "kubernetes.io/job-controller",
    "jobset.sigs.k8s.io/jobset-controller",
)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def migrate_metadata(manifest: Mapping[str, Any], remarks: Remarks) -> Manifest:
    old = manifest.get("metadata") or {}
    metadata = {key: old[key] for key in KEPT if old.get(key)}
    field, added = ("name", "") if "name" in metadata else ("generateName", ADDED)
    if field not in metadata:
        raise CannotMigrate("metadata.name", "is missing")
    name = f"{metadata[field]}{added}"
    if len(name) > LONGEST_NAME or not NAME.match(name):
        raise CannotMigrate(
            f"metadata.{field}",
            f"must have at most {LONGEST_NAME - len(added)} characters of a-z, 0-9 and -, and "
            "begin with a letter: pods and hosts are named after it",
        )
    labels = dict(old.get("labels") or {})
    if QUEUE_LABEL in labels:
        stays = "stays: the operator asks Kueue for quota if its chart sets kueue.enabled"
        remarks.add(f"metadata.labels[{QUEUE_LABEL}]", stays)
    annotations: Manifest = {}
    for key, value in (old.get("annotations") or {}).items():
        if str(key).startswith(PLACEMENT):
            text = "use an affinity or topologySpreadConstraints in spec.template"
            remarks.drop(f"metadata.annotations[{key}]", text)
        elif key not in NOT_KEPT_ANNOTATIONS:
            annotations[key] = value
    return metadata | set_fields({"labels": labels, "annotations": annotations})


def run_fields(
    path: str,
    old: Mapping[str, Any],
    metadata: Mapping[str, Any],
    remarks: Remarks,
) -> Manifest:
    """The fields that hold a job back, end it and clean up, which have the same names here."""
    # Another manager, such as MultiKueue, does not stay.
    manager = old.get("managedBy")
    if manager and manager not in OWN_CONTROLLERS:
        text = "is dropped: it does not know this kind of job, which would never start"
        remarks.add(f"{path}.managedBy", f"{manager} {text}")
    suspended = bool(old.get("suspend"))
    if suspended and _is_queued(metadata):
        remarks.add(
            f"{path}.suspend",
            "is kept, but Kueue does not change it in this kind of job: set it to false if Kueue "
            "set it",
        )
    same = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
    return {"suspend": suspended or None, **{field: old.get(field) for field in same}}


def gang_scheduling(
    path: str, scheduler: str, metadata: Mapping[str, Any], remarks: Remarks
) -> Manifest:
    """`scheduling` by a gang scheduler; in a queue, Kueue already admits workers together."""
    if _is_queued(metadata):
        return {}
    since = " (from 1.37 on)" if scheduler == "Kubernetes" else ""
    text = (
        f"becomes spec.scheduling.gangScheduler: name {scheduler}{since} in gangSchedulers of the "
        "operator's chart, set another one that the cluster has, or remove it"
    )
    remarks.add(path, text)
    return {"scheduling": {"gangScheduler": scheduler}}


def set_fields(fields: Mapping[str, Any]) -> Manifest:
    """Those of the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _is_queued(metadata: Mapping[str, Any]) -> bool:
    return QUEUE_LABEL in metadata.get("labels", {})
