"""The operator's view of jobs, pods and nodes: fed by watches, repaired by lists, ahead of the watches by its own writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator import names
from elastic_pytorch_operator.hearing import Hearing, version_of
from elastic_pytorch_operator.job import InvalidJob, Job, JobKey, parse_job, parse_key
from elastic_pytorch_operator.observed import NodeView, PodView
from elastic_pytorch_operator.views import job_of_pod, view_node, view_pod

Manifest = Mapping[str, Any]


@dataclass(slots=True)
class _JobEntry:
    uid: str
    version: int
    job: Job | InvalidJob
    manifest: Manifest
    seen_at: float


@dataclass(slots=True)
class _PodEntry:
    view: PodView
    key: JobKey
    job_uid: str
    version: int


@dataclass(slots=True)
class Store:
    """Everything last told of jobs, their pods, and nodes.

    Each `apply_...` returns the jobs that it may matter to. What is older than what is known is ignored, so that a watch that lags
    behind does not undo the operator's own writes. What a list has brought to light the watches are expected to tell, too.
    """

    nodes: dict[str, NodeView] = field(default_factory=dict)
    primed: bool = False
    hearing: Hearing = field(default_factory=Hearing)
    _jobs: dict[JobKey, _JobEntry] = field(default_factory=dict)
    _pods: dict[tuple[str, str], _PodEntry] = field(default_factory=dict)
    _pods_of: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def job(self, key: JobKey) -> Job | InvalidJob | None:
        """A job, or what is wrong with it; None if there is none."""
        entry = self._jobs.get(key)
        return entry.job if entry else None

    def job_manifest(self, key: JobKey) -> Manifest:
        """A known job as the API server last told it."""
        return self._jobs[key].manifest

    @property
    def keys(self) -> list[JobKey]:
        """All jobs."""
        return list(self._jobs)

    def pods_of(self, job_uid: str) -> tuple[PodView, ...]:
        """The worker pods of a job, by index."""
        return self._of_role(job_uid, names.ROLE_WORKER)

    def stores_of(self, job_uid: str) -> tuple[PodView, ...]:
        """The pods that serve the stores of a job's stock rendezvous."""
        return self._of_role(job_uid, names.ROLE_STORE)

    def worker(self, namespace: str, name: str, uid: str) -> tuple[JobKey, str] | None:
        """The job of a worker pod, with its UID; None if the pod is not known, or is another one by now."""
        entry = self._pods.get((namespace, name))
        if entry is None or entry.view.uid != uid or entry.view.role != names.ROLE_WORKER or not self._belongs(entry):
            return None
        return entry.key, entry.job_uid

    @property
    def worker_addresses(self) -> frozenset[str]:
        """The addresses of all worker pods."""
        return frozenset(entry.view.address for entry in self._pods.values() if self._belongs(entry))

    @property
    def has_plain_agents(self) -> bool:
        """Whether some worker's agent was told to speak without TLS, and may do so yet."""
        return any(entry.view.plain_http and not entry.view.ended and self._belongs(entry) for entry in self._pods.values())

    def apply_job(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of a job."""
        key, metadata = parse_key(manifest), manifest["metadata"]
        known, version = self._jobs.get(key), version_of(metadata)
        if known is not None and known.uid == metadata.get("uid", "") and known.version >= version:
            return set()
        parsed: Job | InvalidJob
        try:
            parsed = parse_job(manifest)
        except InvalidJob as problem:
            parsed = problem
        self._jobs[key] = _JobEntry(metadata.get("uid", ""), version, parsed, manifest, now)
        return {key}

    def remove_job(self, manifest: Manifest) -> set[JobKey]:
        """Forgets a job, unless another one has taken its name."""
        key = parse_key(manifest)
        known = self._jobs.get(key)
        if known is None or known.uid != manifest["metadata"].get("uid", ""):
            return set()
        del self._jobs[key]
        return {key}

    def apply_pod(self, manifest: Manifest, now: float) -> set[JobKey]:
        """Takes note of a pod; those that are no job's are ignored."""
        owner, metadata = job_of_pod(manifest), manifest["metadata"]
        if owner is None:
            return set()
        place, version = (metadata["namespace"], metadata["name"]), version_of(metadata)
        known = self._pods.get(place)
        same = known is not None and known.view.uid == metadata["uid"]
        if same and known is not None and known.version >= version:
            return set()
        seen_at = known.view.created_at if same and known is not None else now
        view = view_pod(manifest, seen_at=seen_at, at_start=not self.primed)
        if same and known is not None:
            view = replace(
                view,
                seen_dead_at_start=known.view.seen_dead_at_start,
                stuck_since=known.view.stuck_since if known.view.stuck and view.stuck else now,
            )
        key, job_uid = owner
        self._forget_pod(place)
        self._pods[place] = _PodEntry(view, key, job_uid, version)
        self._pods_of.setdefault(job_uid, set()).add(place)
        return {key}

    def remove_pod(self, manifest: Manifest) -> set[JobKey]:
        """Forgets a pod, unless another one has taken its name."""
        metadata = manifest["metadata"]
        place = (metadata["namespace"], metadata["name"])
        known = self._pods.get(place)
        if known is None or known.view.uid != metadata["uid"]:
            return set()
        self._forget_pod(place)
        return {known.key}

    def apply_node(self, manifest: Manifest) -> set[JobKey]:
        """Takes note of a node; only what changes its view matters to the jobs with pods there."""
        view = view_node(manifest)
        if self.nodes.get(view.name) == view:
            return set()
        self.nodes[view.name] = view
        return self._jobs_on(view.name)

    def remove_node(self, manifest: Manifest) -> set[JobKey]:
        """Forgets a node."""
        name = manifest["metadata"]["name"]
        self.nodes.pop(name, None)
        return self._jobs_on(name)

    def bury_the_dead(self) -> None:
        """Takes note that pods which have ended by now did so before this operator began to decide anything."""
        for entry in self._pods.values():
            if entry.view.ended:
                entry.view = replace(entry.view, seen_dead_at_start=True)

    def replace_all(
        self, jobs: Iterable[Manifest], pods: Iterable[Manifest], nodes: Iterable[Manifest], now: float
    ) -> set[JobKey]:
        """Puts right what a watch has missed.

        Args:
            jobs: all there are.
            pods: all worker pods there are.
            nodes: all there are, listed after the pods, so that no pod's node is missing.
            now: when the listing began; what has been seen since is left as it is.
        """
        touched: set[JobKey] = set()
        node_names, node_uids, pod_uids, job_uids = set(), set(), set(), set()
        for node in nodes:
            node_names.add(node["metadata"]["name"])
            node_uids.add(node["metadata"].get("uid", ""))
            if self.nodes.get(node["metadata"]["name"]) != view_node(node):
                self.hearing.expect("nodes", node, now)
            touched |= self.apply_node(node)
        for name in [name for name in self.nodes if name not in node_names]:
            touched |= self.remove_node({"metadata": {"name": name}})
        for pod in pods:
            pod_uids.add(pod["metadata"]["uid"])
            if news := self.apply_pod(pod, now):
                self.hearing.expect("pods", pod, now)
                touched |= news
        for place, entry in list(self._pods.items()):
            if entry.view.uid not in pod_uids and entry.view.created_at < now:
                self._forget_pod(place)
                touched.add(entry.key)
        for job in jobs:
            job_uids.add(job["metadata"].get("uid", ""))
            if news := self.apply_job(job, now):
                self.hearing.expect("jobs", job, now)
                touched |= news
        for key in [key for key, known in self._jobs.items() if known.uid not in job_uids and known.seen_at < now]:
            del self._jobs[key]
            touched.add(key)
        for kind, uids in (("jobs", job_uids), ("pods", pod_uids), ("nodes", node_uids)):
            self.hearing.forget_others(kind, uids)
        self.primed = True
        return touched

    def _of_role(self, job_uid: str, role: str) -> tuple[PodView, ...]:
        entries = (self._pods[place] for place in self._pods_of.get(job_uid, ()))
        views = (entry.view for entry in entries if self._belongs(entry))
        return tuple(sorted((v for v in views if v.role == role), key=lambda pod: (pod.index, pod.created_at, pod.name)))

    def _belongs(self, entry: _PodEntry) -> bool:
        """Whether a pod is where its job is: anybody may write another namespace's job into a pod of theirs."""
        job = self._jobs.get(entry.key)
        return job is not None and job.uid == entry.job_uid

    def _forget_pod(self, place: tuple[str, str]) -> None:
        entry = self._pods.pop(place, None)
        if entry is not None:
            places = self._pods_of[entry.job_uid]
            places.discard(place)
            if not places:
                del self._pods_of[entry.job_uid]

    def _jobs_on(self, node: str) -> set[JobKey]:
        return {entry.key for entry in self._pods.values() if entry.view.node == node}
