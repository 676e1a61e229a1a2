"""The operator's view of jobs, pods and nodes: fed by watches, repaired by lists, ahead of the watches by its own writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.informer.owned_objects import Entry
from elastic_pytorch_operator.informer.pod_index import PodIndex
from elastic_pytorch_operator.informer.pod_views import follow_view, job_of_pod, view_node, view_pod, without_managed_fields
from elastic_pytorch_operator.informer.relevance import plans_alike, pods_alike
from elastic_pytorch_operator.informer.watch_lag import WatchLag, version_of
from elastic_pytorch_operator.informer.workload_views import WorkloadIndex, job_of_workload, view_workload
from elastic_pytorch_operator.model.announced_ends import MARKS, Mark
from elastic_pytorch_operator.model.observed import Nodes, NodeView, PodView
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, JobKey, parse_job, parse_key

Manifests = Iterable[Manifest]

# What the watches are called, by the kind of the objects that they report.
WATCHES = {names.KIND: "jobs", "Pod": "pods", "Node": "nodes", kueue.WORKLOAD: "workloads"}
TOMBSTONE_SECONDS = 60.0  # longer than any answer, and what a watch lags behind
MAX_TOMBSTONES = 50_000  # some 10 MiB


@dataclass(slots=True)
class _JobEntry:
    uid: str
    version: int
    job: Job | InvalidJob
    manifest: Manifest
    seen_at: float


@dataclass(slots=True)
class _NodeEntry:
    uid: str
    version: int
    seen_at: float


@dataclass(slots=True)
class Cache:
    """Everything last reported about jobs, their pods, and nodes.

    Each method that takes an object in returns the jobs whose plans may change by it. An object older than the known one is ignored, so
    that a watch that lags behind does not undo the operator's own writes. A change that a write or a list has shown must arrive on the
    watch, too.

    What was deleted leaves a tombstone: a list that began before, a late answer to a write, or a watch that lags do not bring it back.

    Attributes:
        primed: whether everything has been listed once.
        marks: the taints and labels that announce a node's end.
        watch_lag: what the watches have yet to report.
    """

    primed: bool = False
    marks: tuple[Mark, ...] = MARKS
    watch_lag: WatchLag = field(default_factory=WatchLag)
    _nodes: dict[str, NodeView] = field(default_factory=dict)
    _nodes_now: Nodes | None = None  # a copy; None: not made since the last change of a node
    _node_entries: dict[str, _NodeEntry] = field(default_factory=dict)
    _jobs: dict[JobKey, _JobEntry] = field(default_factory=dict)
    _keys: dict[str, JobKey] = field(default_factory=dict)  # of the jobs, by UID
    _pods: PodIndex = field(default_factory=PodIndex)
    _workloads: WorkloadIndex = field(default_factory=WorkloadIndex)
    _tombstones: dict[str, float] = field(
        default_factory=dict
    )  # by UID of what jobs own, or a job, the oldest first: when it was deleted

    def job(self, key: JobKey) -> Job | InvalidJob | None:
        """A job, or what is wrong with it; None if there is none."""
        entry = self._jobs.get(key)
        return entry.job if entry else None

    def job_manifest(self, key: JobKey) -> Manifest:
        """A known job, as the API server last reported it."""
        return self._jobs[key].manifest

    def has_job(self, key: JobKey, uid: str) -> bool:
        """Whether a job is there, and is the one with that UID."""
        entry = self._jobs.get(key)
        return entry is not None and entry.uid == uid

    @property
    def job_uids(self) -> set[str]:
        """The UIDs of all jobs."""
        return set(self._keys)

    @property
    def keys(self) -> list[JobKey]:
        """All jobs."""
        return list(self._jobs)

    @property
    def nodes(self) -> Nodes:
        """All nodes. It is the same object until one of them changes."""
        if self._nodes_now is None:
            self._nodes_now = Nodes(self._nodes)
        return self._nodes_now

    def pods_of(self, job_uid: str) -> tuple[PodView, ...]:
        """The worker pods of a job, by index. It is the same tuple until one of the job's pods changes."""
        key = self._keys.get(job_uid)
        return self._pods.workers_of((key, job_uid)) if key else ()

    def stores_of(self, job_uid: str) -> tuple[PodView, ...]:
        """The pods that serve the stores of a job's stock rendezvous."""
        key = self._keys.get(job_uid)
        return self._pods.stores_of((key, job_uid)) if key else ()

    def workloads_of(self, job_uid: str) -> tuple[WorkloadView, ...]:
        """Kueue's Workloads of a job, by number."""
        key = self._keys.get(job_uid)
        return self._workloads.of((key, job_uid)) if key else ()

    def worker(self, namespace: str, name: str, uid: str) -> tuple[JobKey, str] | None:
        """The job of a worker pod, with its UID; None if the pod is not known, or is another one by now."""
        entry = self._pods.get((namespace, name))
        if entry is None or entry.uid != uid or entry.view.role != names.ROLE_WORKER or not self.has_job(*entry.owner):
            return None
        return entry.owner

    def has_pod_at(self, address: str) -> bool:
        """Whether a pod of a job has this address."""
        return any(self.has_job(*owner) for owner in self._pods.owners_at(address))

    @property
    def running_workers(self) -> int:
        """How many worker pods run."""
        return sum(pod.view.started and not pod.view.ended and pod.view.role == names.ROLE_WORKER for _, pod in self._pods)

    @property
    def silent_since(self) -> Mapping[str, float]:
        """By kind: since when a watch has reported nothing, although a change is known."""
        return self.watch_lag.silent_since()

    def observe_change(self, kind: str, change: str | None, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of what a watch has reported.

        Args:
            kind: of the object; one that is not watched is ignored.
            change: `ADDED`, `MODIFIED` or `DELETED`; None: the object was there when the watch began.
            manifest: the object.
            now: monotonic seconds.
        """
        if kind not in WATCHES:
            return set()
        deleted = change == "DELETED"
        self.watch_lag.observe(WATCHES[kind], manifest, now, gone=deleted, begins=change is None)
        match kind:
            case "Pod":
                return self.remove_pod(manifest, now) if deleted else self.apply_pod(manifest, now)
            case "Node":
                return self.remove_node(manifest, now) if deleted else self.apply_node(manifest, now)
            case kueue.WORKLOAD:
                return self.remove_workload(manifest, now) if deleted else self.apply_workload(manifest, now)
            case _:
                return self.remove_job(manifest, now) if deleted else self.apply_job(manifest, now)

    def note_written_pod(self, manifest: Manifest, now: float) -> None:
        """Takes note of a pod that this operator has just created; the watch has yet to report it."""
        self.apply_pod(manifest, now)
        self.watch_lag.expect("pods", manifest, now)

    def note_written_workload(self, manifest: Manifest, now: float) -> None:
        """Takes note of a Workload that this operator has just written; the watch has yet to report that."""
        self.apply_workload(manifest, now)
        self.watch_lag.expect("workloads", manifest, now)

    def note_written_job(self, manifest: Manifest, now: float) -> None:
        """Takes note of a job that this operator has just changed; the watch has yet to report that."""
        self.apply_job(manifest, now)
        self.watch_lag.expect("jobs", manifest, now)

    def apply_job(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of a job. What is not news, or no plan reads, concerns no job."""
        return self._take_job(manifest, now) or set()

    def remove_job(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Forgets a job, unless another one has taken its name."""
        key = parse_key(manifest)
        self._leave_tombstone(manifest["metadata"].get("uid", ""), now)
        known = self._jobs.get(key)
        if known is None or known.uid != manifest["metadata"].get("uid", ""):
            return set()
        self._forget_job(key)
        return {key}

    def apply_pod(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of a pod, as `apply_job` does of a job; those that are no job's are ignored."""
        return self._take_pod(manifest, now) or set()

    def remove_pod(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Forgets a pod, unless another one has taken its name."""
        return self._remove(self._pods, manifest, now)

    def apply_workload(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of a Workload of Kueue, as `apply_job` does of a job; those that are no job's are ignored."""
        return self._take_workload(manifest, now) or set()

    def remove_workload(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Forgets a Workload, unless another one has taken its name."""
        return self._remove(self._workloads, manifest, now)

    def _remove(self, index: PodIndex | WorkloadIndex, manifest: Manifest, now: float) -> set[JobKey]:
        metadata = manifest["metadata"]
        self._leave_tombstone(metadata["uid"], now)
        place = (metadata["namespace"], metadata["name"])
        known = index.get(place)
        if known is None or known.uid != metadata["uid"]:
            return set()
        index.drop(place)
        return {known.owner[0]}

    def apply_node(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of a node; only what changes its view matters to the jobs with pods there."""
        metadata, view = manifest["metadata"], view_node(manifest, self.marks)
        uid, version = metadata.get("uid", ""), version_of(metadata)
        known, entry = self._nodes.get(view.name), self._node_entries.get(view.name)
        same = entry is not None and entry.uid == uid
        if entry is not None and (version < entry.version or (same and known is not None and known.removed)):
            return set()
        self._node_entries[view.name] = _NodeEntry(uid, version, entry.seen_at if same and entry is not None else now)
        if known == view:
            return set()
        self._nodes[view.name], self._nodes_now = view, None
        return self._jobs_on(view.name)

    def remove_node(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Remembers a node as removed, unless another one has taken its name: it differs from an unknown one."""
        name, uid = manifest["metadata"]["name"], manifest["metadata"].get("uid", "")
        known, entry = self._nodes.get(name), self._node_entries.get(name)
        if known is not None and entry is not None and (known.removed or entry.uid != uid):
            return set()
        version = max(version_of(manifest["metadata"]), entry.version if entry else 0)
        self._node_entries[name] = _NodeEntry(uid, version, now)
        self._nodes[name], self._nodes_now = NodeView(name, ready=False, removed=True), None
        return self._jobs_on(name)

    def mark_ended_before_takeover(self) -> None:
        """Marks the pods that have ended: they did so before this operator began to decide anything."""
        self._pods.mark_ended_before_takeover()

    def replace_all(
        self, jobs: Manifests, pods: Manifests, nodes: Manifests, now: float, workloads: Manifests = ()
    ) -> set[JobKey]:
        """Corrects what a watch has missed.

        Args:
            jobs: all there are.
            pods: all worker pods there are.
            nodes: all there are, listed after the pods, so that no pod's node is missing.
            now: when the listing began; what has been seen since is left as it is.
            workloads: all of Kueue's that jobs own.
        """
        touched: set[JobKey] = set()
        node_names, node_uids, pod_uids, job_uids, workload_uids = set(), set(), set(), set(), set()
        for node in nodes:
            node_names.add(node["metadata"]["name"])
            node_uids.add(node["metadata"].get("uid", ""))
            if self._nodes.get(node["metadata"]["name"]) != view_node(node, self.marks):
                self.watch_lag.expect("nodes", node, now)
            touched |= self.apply_node(node, now)
        for name, known in list(self._node_entries.items()):
            if name not in node_names and known.seen_at < now:
                touched |= self.remove_node({"metadata": {"name": name, "uid": known.uid}}, now)
        for pod in pods:
            pod_uids.add(pod["metadata"]["uid"])
            if (concerned := self._take_pod(pod, now, listed=True)) is not None:
                self.watch_lag.expect("pods", pod, now)
                touched |= concerned
        for place, entry in self._pods:
            if entry.uid not in pod_uids and entry.view.created_at < now:
                self._pods.drop(place)
                self._leave_tombstone(entry.uid, now)
                touched.add(entry.owner[0])
        for workload in workloads:
            workload_uids.add(workload["metadata"]["uid"])
            if (concerned := self._take_workload(workload, now, listed=True)) is not None:
                self.watch_lag.expect("workloads", workload, now)
                touched |= concerned
        for gone in self._workloads.drop_others(workload_uids, now):
            self._leave_tombstone(gone.uid, now)
            touched.add(gone.owner[0])
        for job in jobs:
            job_uids.add(job["metadata"].get("uid", ""))
            if (concerned := self._take_job(job, now, listed=True)) is not None:
                self.watch_lag.expect("jobs", job, now)
                touched |= concerned
        for key in [key for key, known in self._jobs.items() if known.uid not in job_uids and known.seen_at < now]:
            self._leave_tombstone(self._forget_job(key).uid, now)
            touched.add(key)
        self._tombstones = {uid: at for uid, at in self._tombstones.items() if at >= now - TOMBSTONE_SECONDS}
        for kind, uids in (("jobs", job_uids), ("pods", pod_uids), ("nodes", node_uids), ("workloads", workload_uids)):
            self.watch_lag.forget_others(kind, uids)
        self._forget_removed_nodes()
        self.primed = True
        return touched

    def _take_job(self, manifest: Manifest, now: float, *, listed: bool = False) -> set[JobKey] | None:
        """Takes note of a job; returns whom it concerns, None if it is not news.

        Args:
            manifest: the job.
            now: when it was reported; if it was listed, when the listing began.
            listed: it comes from a list.
        """
        key, metadata = parse_key(manifest), manifest["metadata"]
        known, version = self._jobs.get(key), version_of(metadata)
        if not self._is_news(metadata, known, now, listed=listed):
            return None
        if known is not None and known.uid != metadata.get("uid", ""):
            self._forget_job(key)
            self._leave_tombstone(known.uid, now)
        parsed: Job | InvalidJob
        try:
            parsed = parse_job(manifest)
        except InvalidJob as problem:
            parsed = problem
        kept = {**manifest, "metadata": without_managed_fields(metadata)}
        self._jobs[key] = _JobEntry(metadata.get("uid", ""), version, parsed, kept, now)
        self._keys[metadata.get("uid", "")] = key
        return set() if known is not None and plans_alike(known.job, parsed) else {key}

    def _take_pod(self, manifest: Manifest, now: float, *, listed: bool = False) -> set[JobKey] | None:
        """Takes note of a pod, as `_take_job` does of a job."""
        owner, metadata = job_of_pod(manifest), manifest["metadata"]
        if owner is None:
            return None
        place = (metadata["namespace"], metadata["name"])
        entry = self._pods.get(place)
        if not self._is_news(metadata, entry, now, listed=listed):
            return None
        known = entry.view if entry is not None and entry.uid == metadata["uid"] else None
        view = view_pod(manifest, seen_at=known.created_at if known else now, at_start=not self.primed)
        if known is not None:
            view = follow_view(known, view, now)
        self._pods.put(place, Entry(view, owner, version_of(metadata), now))
        job = self.job(owner[0])
        read = job.pod_conditions if isinstance(job, Job) else frozenset()
        return set() if known is not None and pods_alike(known, view, read) else {owner[0]}

    def _take_workload(self, manifest: Manifest, now: float, *, listed: bool = False) -> set[JobKey] | None:
        """Takes note of a Workload, as `_take_job` does of a job."""
        owner, metadata = job_of_workload(manifest), manifest["metadata"]
        if owner is None:
            return None
        place = (metadata["namespace"], metadata["name"])
        known = self._workloads.get(place)
        if not self._is_news(metadata, known, now, listed=listed):
            return None
        view = view_workload(manifest, known.view if known else None, now)
        return {owner[0]} if self._workloads.put(place, Entry(view, owner, version_of(metadata), now)) else set()

    def _is_news(
        self, metadata: Manifest, known: _JobEntry | Entry[PodView] | Entry[WorkloadView] | None, now: float, *, listed: bool
    ) -> bool:
        """Whether an object that was reported is newer than what is known by its name.

        A list is right about all that was known before it began, even if it has an older version, or what was deleted: then
        etcd was restored from a backup. (The operator lists without a resource version, so that the API server reads the newest state.)
        """
        uid, version = metadata.get("uid", ""), version_of(metadata)
        if uid in self._tombstones:
            if not listed or self._tombstones[uid] >= now:
                return False
            del self._tombstones[uid]
        if known is None:
            return True
        if listed and known.seen_at < now:
            if known.version > version:
                self.watch_lag.restart(uid)
            return (known.uid, known.version) != (uid, version)
        return known.version < version or (known.uid != uid and known.version == version)

    def _leave_tombstone(self, uid: str, now: float) -> None:
        self._tombstones.pop(uid, None)
        self._tombstones[uid] = now
        if len(self._tombstones) > MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]

    def _forget_job(self, key: JobKey) -> _JobEntry:
        entry = self._jobs.pop(key)
        self._keys.pop(entry.uid, None)
        return entry

    def _forget_removed_nodes(self) -> None:
        """Forgets the removed nodes that no pod is on any more."""
        for name in [name for name, node in self._nodes.items() if node.removed and name not in self._pods.nodes]:
            del self._nodes[name], self._node_entries[name]
            self._nodes_now = None

    def _jobs_on(self, node: str) -> set[JobKey]:
        return {key for key, _ in self._pods.owners_on(node)}
