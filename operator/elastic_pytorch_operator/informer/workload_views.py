"""Reduces Kueue's Workloads to the views that decisions read, and keeps those of all jobs."""

from collections.abc import Container
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.informer.owned_objects import Entry, Owner, Place, require_texts
from elastic_pytorch_operator.model.workload import Admission, WorkloadView
from elastic_pytorch_operator.spec.job import JobKey


def job_of_workload(workload: Manifest) -> Owner | None:
    """The job that owns a Workload, with its UID; None: it is not one of ours."""
    metadata = workload["metadata"]
    if _number_of(metadata) is None:
        return None
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == names.KIND and owner.get("controller"):
            return JobKey(metadata["namespace"], owner["name"]), owner["uid"]
    return None


def view_workload(workload: Manifest, known: WorkloadView | None, now: float) -> WorkloadView:
    """The view of a Workload of a job.

    Args:
        workload: the object.
        known: the view before; None: it is new.
        now: monotonic seconds.
    """
    metadata, spec, status = workload["metadata"], workload.get("spec") or {}, workload.get("status") or {}
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
        conditions=tuple(status.get("conditions") or ()),
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


@dataclass(slots=True)
class WorkloadIndex:
    """The Workloads of all jobs, by name and by job."""

    _entries: dict[Place, Entry[WorkloadView]] = field(default_factory=dict)
    _of_owner: dict[Owner, dict[Place, WorkloadView]] = field(default_factory=dict)

    def get(self, place: Place) -> Entry[WorkloadView] | None:
        """A Workload; None if it is not known."""
        return self._entries.get(place)

    def put(self, place: Place, entry: Entry[WorkloadView]) -> bool:
        """Takes in a Workload. It replaces the one of its name; returns whether a plan may differ by that.

        Raises:
            TypeError: it cannot be found by what it calls itself or its job.
        """
        require_texts(*place, *entry.owner[0], entry.owner[1], entry.uid)
        known = self._entries.get(place)
        self.drop(place)
        self._entries[place] = entry
        self._of_owner.setdefault(entry.owner, {})[place] = entry.view
        return known is None or known.view != replace(entry.view, version=known.view.version)

    def drop(self, place: Place) -> None:
        """Forgets a Workload, if it is known."""
        entry = self._entries.pop(place, None)
        if entry is not None:
            views = self._of_owner[entry.owner]
            del views[place]
            if not views:
                del self._of_owner[entry.owner]

    def drop_others(self, uids: Container[str], before: float, unavailable: Container[str] = ()) -> list[Entry[WorkloadView]]:
        """Forgets those that a list does not have, and returns them.

        Args:
            uids: what the list has.
            before: when it began; what was reported since stays.
            unavailable: the namespaces that it does not cover.
        """
        gone = {
            place: entry
            for place, entry in self._entries.items()
            if entry.uid not in uids and entry.seen_at < before and place[0] not in unavailable
        }
        for place in gone:
            self.drop(place)
        return list(gone.values())

    def of(self, owner: Owner) -> tuple[WorkloadView, ...]:
        """The Workloads of a job, by number."""
        return tuple(sorted(self._of_owner.get(owner, {}).values(), key=lambda workload: workload.number))
