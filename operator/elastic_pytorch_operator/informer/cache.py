"""The operator's view of jobs, pods and nodes, by watches, lists and its own writes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.informer.changes import (
    Identity,
    differ_in_status,
    identify,
    plans_alike,
    pods_alike,
    version_of,
)
from elastic_pytorch_operator.informer.node_index import NodeIndex
from elastic_pytorch_operator.informer.owned_objects import Entry, OwnedIndex, Owner, Place
from elastic_pytorch_operator.informer.pod_index import PodIndex
from elastic_pytorch_operator.informer.pod_views import follow_view, job_of_pod, view_pod
from elastic_pytorch_operator.informer.tombstones import Tombstones
from elastic_pytorch_operator.informer.unreadable import UnreadableObjects
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.informer.workload_views import job_of_workload, view_workload
from elastic_pytorch_operator.model.observed import Nodes, PodView
from elastic_pytorch_operator.model.reduced_objects import reduce_job
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.spec.job import Job, JobKey, parse_key
from elastic_pytorch_operator.spec.platform.job_defaults import API_DEFAULTS, JobDefaults
from elastic_pytorch_operator.spec.platform.job_template import TemplateUnread
from elastic_pytorch_operator.spec.stored_job import parse_stored, valid_spec

Manifests = Iterable[Manifest]

WATCHES = {names.KIND: "jobs", "Pod": "pods", "Node": "nodes", kueue.WORKLOAD: "workloads"}


@dataclass(slots=True)
class _JobEntry:
    key: JobKey
    uid: str
    version: int
    job: Job | TemplateUnread
    manifest: Manifest
    seen_at: float


_Known = _JobEntry | Entry[PodView] | Entry[WorkloadView]


@dataclass(slots=True)
class Cache:
    """Each method that takes an object in returns the jobs whose plans may change by it.

    An object older than the known one is ignored, so that a late watch does not undo the operator's
    own writes. If an object cannot be read, its last readable version stays.
    """

    defaults: JobDefaults = API_DEFAULTS
    primed: bool = False  # everything has been listed once
    watch_lag: WatchLag = field(default_factory=WatchLag)
    unreadable: UnreadableObjects = field(default_factory=UnreadableObjects)
    # Watched namespaces that the last list lacks; what was known of them stays.
    unavailable: frozenset[str] = frozenset()
    node_index: NodeIndex = field(default_factory=NodeIndex)
    pods: PodIndex = field(default_factory=PodIndex)
    _jobs: dict[Place, _JobEntry] = field(default_factory=dict)
    _workloads: OwnedIndex[WorkloadView] = field(default_factory=OwnedIndex)
    _tombstones: Tombstones = field(default_factory=Tombstones)
    _templates: dict[str, Manifest] = field(default_factory=dict)  # by UID

    def job(self, key: JobKey) -> Job | TemplateUnread | None:
        entry = self._jobs.get(key)
        return entry.job if entry else None

    def job_manifest(self, key: JobKey) -> Manifest:
        return self._jobs[key].manifest

    def note_template(self, uid: str, spec: Manifest) -> None:
        self._templates[uid] = spec
        for entry in self._jobs.values():
            if isinstance(entry.job, TemplateUnread) and entry.job.template_uid == uid:
                entry.job = self._parse(entry.manifest, None)

    def has_job(self, key: JobKey, uid: str) -> bool:
        entry = self._jobs.get(key)
        return entry is not None and entry.uid == uid

    @property
    def job_uids(self) -> set[str]:
        return {entry.uid for entry in self._jobs.values()}

    @property
    def keys(self) -> list[JobKey]:
        return [entry.key for entry in self._jobs.values()]

    @property
    def nodes(self) -> Nodes:
        """All nodes: the same object until one of them changes."""
        return self.node_index.all

    def workloads_of(self, owner: Owner) -> tuple[WorkloadView, ...]:
        found = self._workloads.of(owner)
        return tuple(sorted(found, key=lambda workload: workload.number))

    def worker(self, namespace: str, name: str, uid: str) -> tuple[JobKey, str] | None:
        """A worker pod's job, and its UID; None if the pod is unknown, or another one by now."""
        entry = self.pods.get((namespace, name))
        if (
            entry is None
            or entry.uid != uid
            or entry.view.role != names.ROLE_WORKER
            or not self.has_job(*entry.owner)
        ):
            return None
        return entry.owner

    def has_pod_at(self, address: str) -> bool:
        return any(self.has_job(*owner) for owner in self.pods.owners_at(address))

    @property
    def running_workers(self) -> int:
        return sum(
            pod.view.started and not pod.view.ended and pod.view.role == names.ROLE_WORKER
            for pod in self.pods.values()
        )

    def observe_change(
        self, kind: str, change: str | None, manifest: Manifest, now: float
    ) -> set[JobKey]:
        """`change` is None as the watch begins."""
        if kind not in WATCHES:
            return set()
        deleted = change == "DELETED"
        self.watch_lag.observe(WATCHES[kind], manifest, now, gone=deleted, begins=change is None)
        if deleted:
            return self.remove(kind, identify(manifest), now)
        return self.apply(kind, manifest, now)

    def note_written(self, kind: str, manifest: Manifest, now: float) -> None:
        self.apply(kind, manifest, now)
        self.watch_lag.expect(WATCHES[kind], manifest, now)

    def apply(self, kind: str, manifest: Manifest, now: float) -> set[JobKey]:
        return self._take(kind, manifest, now) or set()

    def remove(self, kind: str, found: Identity, now: float) -> set[JobKey]:
        """Forgets an object, unless another one has its name; remembers a node as removed."""
        self.unreadable.forget(kind, found.uid)
        if kind == "Node":
            return self._jobs_on(found.name) if self.node_index.remove(found, now) else set()
        self._tombstones.leave(found.uid, now)
        entries, place = self._entries(kind), (found.namespace or "default", found.name)
        known = entries.get(place)
        if known is None or known.uid != found.uid:
            return set()
        del entries[place]
        return {known.key}

    def replace_all(
        self,
        jobs: Manifests,
        pods: Manifests,
        nodes: Manifests,
        now: float,
        workloads: Manifests = (),
        unavailable: Collection[str] = (),
    ) -> set[JobKey]:
        """Corrects what a watch has missed; what has been seen since the listing began stays.

        The nodes are listed after the pods, so that no pod's node is missing.
        """
        touched: set[JobKey] = set()
        self.unavailable = frozenset(unavailable)
        for kind, listed in (
            ("Node", nodes),
            ("Pod", pods),
            (kueue.WORKLOAD, workloads),
            (names.KIND, jobs),
        ):
            uids, listed_names = set(), set()
            for manifest in listed:
                found = identify(manifest)
                uids.add(found.uid)
                listed_names.add(found.name)
                if (concerned := self._take(kind, manifest, now, listed=True)) is not None:
                    self.watch_lag.expect(WATCHES[kind], manifest, now)
                    touched |= concerned
            touched |= self._drop_others(kind, uids, listed_names, now)
            self.watch_lag.forget_others(WATCHES[kind], uids)
            self.unreadable.forget_others(kind, uids)
        self._tombstones.expire(now)
        self.node_index.forget_removed(self.pods.nodes)
        used = {entry.job.template_uid for entry in self._jobs.values()}
        self._templates = {uid: spec for uid, spec in self._templates.items() if uid in used}
        self.watch_lag.listed(now)
        self.primed = True
        return touched

    def _drop_others(
        self, kind: str, uids: Collection[str], listed_names: Collection[str], now: float
    ) -> set[JobKey]:
        if kind == "Node":
            removed = self.node_index.remove_others(listed_names, now)
            return set().union(*map(self._jobs_on, removed))
        entries = self._entries(kind)
        gone = [
            (place, entry)
            for place, entry in entries.items()
            if entry.uid not in uids
            and _known_since(entry) < now
            and place[0] not in self.unavailable
        ]
        for place, entry in gone:
            del entries[place]
            self._tombstones.leave(entry.uid, now)
        return {entry.key for _, entry in gone}

    def _take(
        self, kind: str, manifest: Manifest, now: float, *, listed: bool = False
    ) -> set[JobKey] | None:
        """Returns the jobs that an object concerns, or None if it is no news.

        `now` is when it was reported, or when the list that has it began.
        """
        try:
            match kind:
                case "Pod":
                    concerned = self._take_pod(manifest, now, listed=listed)
                case "Node":
                    changed = self.node_index.take(manifest, now, listed=listed)
                    concerned = self._jobs_on(manifest["metadata"]["name"]) if changed else None
                case kueue.WORKLOAD:
                    concerned = self._take_workload(manifest, now, listed=listed)
                case _:
                    concerned = self._take_job(manifest, now, listed=listed)
        except Exception as fault:
            owner = self.unreadable.note(kind, manifest, fault)
            # After a list, all jobs are planned.
            return {owner[0]} if owner is not None and not listed else None
        self.unreadable.forget(kind, identify(manifest).uid)
        return concerned

    def _take_job(self, manifest: Manifest, now: float, *, listed: bool) -> set[JobKey] | None:
        key, metadata = parse_key(manifest), manifest["metadata"]
        known, version = self._jobs.get(key), version_of(metadata)
        if not self._is_news(metadata, known, now, listed=listed):
            return None
        if known is not None and known.uid != metadata.get("uid", ""):
            del self._jobs[key]
            self._tombstones.leave(known.uid, now)
            known = None
        status = manifest.get("status")
        kept = {**reduce_job(manifest), "status": status if isinstance(status, Mapping) else {}}
        parsed = self._read(kept, known)
        self._jobs[key] = _JobEntry(key, metadata.get("uid", ""), version, parsed, kept, now)
        return set() if known is not None and plans_alike(known.job, parsed) else {key}

    def _read(self, manifest: Manifest, known: _JobEntry | None) -> Job | TemplateUnread:
        """The job of a manifest, parsed only if more than the status of a known job has changed.

        The status decides how to read a spec that is invalid or names a template.
        """
        if known is None or not isinstance(known.job, Job):
            return self._parse(manifest, None)
        job = known.job
        if (
            job.problem
            or "templateRef" in known.manifest["spec"]
            or not differ_in_status(known.manifest, manifest)
        ):
            return self._parse(manifest, valid_spec(job, known.manifest))
        return replace(
            job,
            status=manifest["status"],
            version=str(manifest["metadata"].get("resourceVersion", "")),
        )

    def _parse(self, manifest: Manifest, valid: Manifest | None) -> Job | TemplateUnread:
        try:
            return parse_stored(manifest, self.defaults, valid, self._templates)
        except TemplateUnread as unread:
            return unread.without_trace()

    def _take_pod(self, manifest: Manifest, now: float, *, listed: bool) -> set[JobKey] | None:
        owner, metadata = job_of_pod(manifest), manifest["metadata"]
        if owner is None:
            return None
        place = (metadata["namespace"], metadata["name"])
        entry = self.pods.get(place)
        if not self._is_news(metadata, entry, now, listed=listed):
            return None
        known = entry.view if entry is not None and entry.uid == metadata["uid"] else None
        view = view_pod(
            manifest, seen_at=known.created_at if known else now, at_start=not self.primed
        )
        if known is not None:
            view = follow_view(known, view, now)
        self.pods[place] = Entry(view, owner, version_of(metadata), now)
        job = self.job(owner[0])
        read = job.pod_conditions if isinstance(job, Job) else frozenset()
        return set() if known is not None and pods_alike(known, view, read) else {owner[0]}

    def _take_workload(self, manifest: Manifest, now: float, *, listed: bool) -> set[JobKey] | None:
        owner, metadata = job_of_workload(manifest), manifest["metadata"]
        if owner is None:
            return None
        place = (metadata["namespace"], metadata["name"])
        known = self._workloads.get(place)
        if not self._is_news(metadata, known, now, listed=listed):
            return None
        view = view_workload(manifest, known.view if known else None, now)
        self._workloads[place] = Entry(view, owner, version_of(metadata), now)
        same = known is not None and known.view == replace(view, version=known.view.version)
        return set() if same else {owner[0]}

    def _is_news(
        self, metadata: Manifest, known: _Known | None, now: float, *, listed: bool
    ) -> bool:
        """Whether a reported object is newer than the known one of its name.

        A list is right about all that was known before it began, even with an older version or a
        deleted object: then etcd was restored from a backup.
        """
        uid, version = metadata.get("uid", ""), version_of(metadata)
        if not self._tombstones.admit(uid, now, listed=listed):
            return False
        if known is None:
            return True
        if listed and known.seen_at < now:
            if known.version > version:
                self.watch_lag.restart(uid)
            return (known.uid, known.version) != (uid, version)
        return known.version < version or (known.uid != uid and known.version == version)

    def _entries(
        self, kind: str
    ) -> dict[Place, _JobEntry] | OwnedIndex[PodView] | OwnedIndex[WorkloadView]:
        if kind == names.KIND:
            return self._jobs
        return self.pods if kind == "Pod" else self._workloads

    def _jobs_on(self, node: str) -> set[JobKey]:
        return {key for key, _ in self.pods.owners_on(node)}


def _known_since(entry: _Known) -> float:
    if isinstance(entry, Entry) and isinstance(entry.view, PodView):
        return entry.view.created_at
    return entry.seen_at
