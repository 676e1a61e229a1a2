"""Reduces Kueue's Workloads to the views that decisions read."""

from dataclasses import replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.informer.owned_objects import Owner, owner_of
from elastic_pytorch_operator.model.workload import Admission, WorkloadView


def job_of_workload(workload: Manifest) -> Owner | None:
    metadata = workload["metadata"]
    return None if _number_of(metadata) is None else owner_of(metadata)


def view_workload(workload: Manifest, known: WorkloadView | None, now: float) -> WorkloadView:
    metadata, spec = workload["metadata"], workload.get("spec") or {}
    status = workload.get("status") or {}
    pods: Manifest = next(iter(spec.get("podSets") or ()), {})
    view = WorkloadView(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata.get("resourceVersion", ""),
        number=_number_of(metadata) or 0,
        count=int(pods.get("count", 1)),
        queue=spec.get("queueName") or "",
        active=spec.get("active") is not False,
        deleting=bool(metadata.get("deletionTimestamp")),
        admission=_view_admission(status),
        conditions={
            str(condition.get("type")): condition for condition in status.get("conditions") or ()
        },
        quota_for=(metadata.get("annotations") or {}).get(names.ANNOTATION_QUOTA_FOR, ""),
    )
    if not view.evicted:
        return view
    since = known.evicted_since if known is not None and known.uid == view.uid else None
    return replace(view, evicted_since=now if since is None else since)


def _number_of(metadata: Manifest) -> int | None:
    return parse_count((metadata.get("labels") or {}).get(names.LABEL_WORKLOAD_NUMBER))


def _view_admission(status: Manifest) -> Admission | None:
    admission = status.get("admission") or {}
    assignment = next(iter(admission.get("podSetAssignments") or ()), None)
    if assignment is None:
        return None
    checks = status.get("admissionChecks") or ()
    updates = (update for check in checks for update in check.get("podSetUpdates") or ())
    return Admission(
        cluster_queue=admission.get("clusterQueue") or "",
        count=int(assignment.get("count") or 0),
        flavors=tuple(sorted({*(assignment.get("flavors") or {}).values()})),
        topology=bool(assignment.get("topologyAssignment")),
        updates=tuple(update for update in updates if update.get("name") == assignment.get("name")),
    )
