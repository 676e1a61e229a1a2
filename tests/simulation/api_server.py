"""A simulated world's API server, with Kueue, a scheduler, admission and quotas.

All that is asked takes time, may be refused, or be carried out without an answer.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from elastic_pytorch_local.manifests.admission import admit
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, copied
from elastic_pytorch_operator.api.resources import EVENTS, JOBS, LEASES, PODS, WORKLOADS, Resource
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.cluster.interface import Change, ClusterError
from elastic_pytorch_operator.leadership.fence import UNFENCED, WRITES

from tests.operator.faulty_cluster import add_object
from tests.operator.kueue_stand_in import KueueCluster, count_of, holds_quota

SYSTEM = "elastic-pytorch-system"
OPERATOR = "elastic-pytorch-operator"
NAMESPACE = "default"
OWN_LABEL = "app.kubernetes.io/managed-by"
QUEUES = ("team", "others")
SELECTED = {resource.kind: resource.label for resource in (PODS, WORKLOADS)}
ENDED = ("Succeeded", "Failed")
SCHEDULE_SECONDS = 0.1
ADMIT_SECONDS = 0.2  # Kueue's, from a change to the next cycle
REQUEST_SECONDS = 0.004  # half of what a request takes, on average
COLLECT_SECONDS = 2.0
GONE = 410  # a list whose next page is no longer there
NO_ANSWER_SECONDS = 10.0  # a request that reaches nothing


@dataclass
class Trouble:
    """What is wrong with the API server now.

    Attributes:
        seconds: that each request takes longer, at most.
        code: with which requests are refused; 0: there is no answer.
        share: of the requests that are refused; half of those without an answer are carried out.
        watch_seconds: by which watches lag behind, at most.
        denies_pods: a policy refuses every pod.
        rewrites: a policy writes its own value into labels of pods that it takes for common ones.
        pods: how many pods the namespace may have; None: any number.
        keeps_workloads: a policy refuses the deletion of Workloads.
    """

    seconds: float = 0.0
    code: int = 0
    share: float = 0.0
    watch_seconds: float = 0.0
    denies_pods: bool = False
    rewrites: bool = False
    pods: int | None = None
    keeps_workloads: bool = False

    @property
    def delays(self) -> bool:
        """Whether what the operator does takes longer than usual."""
        return bool(self.seconds or self.share or self.watch_seconds)


@dataclass
class Counts:
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    events: Counter[tuple[str, int]] = field(default_factory=Counter)
    pods: Counter[tuple[str, int]] = field(default_factory=Counter)


class Server(KueueCluster):
    """The objects, and what changes them beside users and the operator.

    Args:
        quota: of Kueue's only queue, in pods.
        time: the time of day.
        hour: which hour of the world it is.
    """

    def __init__(self, quota: int, time: Callable[[], datetime], hour: Callable[[], int]) -> None:
        self.trouble, self.counts = Trouble(), Counts()
        self._time, self._hour = time, hour
        self._pending: dict[tuple[str, str], None] = {}
        self._scheduling = self._admitting = False
        super().__init__(quota, QUEUES, nodes=0)
        self.events = deque(maxlen=1000)  # type: ignore[assignment]
        for kind, name in (("Lease", OPERATOR), ("EndpointSlice", "elastic-pytorch-operator-ipv4")):
            add_object(self, kind, SYSTEM, name)
        for priority in (0, 100, 1000):
            self.add_priority_class(f"priority-{priority}", priority)

    def granted(self, job_uid: str) -> int:
        """For how many pods a job has quota."""
        mine = (
            w
            for w in self.workloads.values()
            if w["metadata"]["ownerReferences"][0]["uid"] == job_uid
        )
        return sum(map(count_of, filter(holds_quota, mine)))

    def unwatch(self, watcher: Callable[..., None]) -> None:
        self._watchers.remove(watcher)

    def _list(self, kind: str, namespace: str = "") -> list[Manifest]:
        return [found for found in super()._list(kind, namespace) if is_selected(kind, found)]

    def all_of(self, kind: str) -> list[MutableManifest]:
        """The objects of a kind as they are stored: not to be changed."""
        return [found for (each, _, _), found in self._objects.items() if each == kind]

    def find(self, kind: str, name: str, namespace: str = NAMESPACE) -> MutableManifest | None:
        return self._objects.get((kind, namespace, name))

    def submit(self, manifest: Manifest) -> None:
        """`kubectl apply`: what the schema refuses is an InvalidJob."""
        admit(copied(dict(manifest)))
        self.apply_job(manifest)

    def change_node(self, name: str, **changes: Any) -> None:
        """Replaces fields of a node's spec; `ready` and `labels` are elsewhere."""
        node = self._objects.get(("Node", "", name))
        if node is None:
            return
        if "ready" in changes:
            node["status"]["conditions"] = [
                {"type": "Ready", "status": "True" if changes.pop("ready") else "Unknown"}
            ]
        node["spec"] = {**node["spec"], **changes}
        self._changed("Node", "MODIFIED", node)
        self._schedule()

    def remove_node(self, name: str) -> None:
        if ("Node", "", name) in self._objects:
            self._remove("Node", "", name)

    def remove_workload(self, name: str) -> None:
        self._remove(kueue.WORKLOAD, NAMESPACE, name)

    def _put(self, kind: str, namespace: str, found: MutableManifest) -> MutableManifest:
        found["metadata"] = {**found["metadata"], "creationTimestamp": write_time(self._time())}
        if kind == "Pod":
            self._pending[namespace, found["metadata"]["name"]] = None
        made = super()._put(kind, namespace, found)
        if made["metadata"].get("ownerReferences"):
            asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._collect, kind, made)
        return made

    def _collect(self, kind: str, found: MutableManifest) -> None:
        """What was made for a job that had gone meanwhile goes, too, by the garbage collector."""
        metadata = found["metadata"]
        owner = metadata["ownerReferences"][0]["uid"]
        place = (metadata["namespace"], metadata["name"])
        there = self._objects.get((kind, *place)) is found
        if there and all(job["metadata"]["uid"] != owner for job in self.all_of(names.KIND)):
            if kind == "Pod":
                self.begin_deletion(*place)
            else:
                self._remove(kind, *place)

    def _changed(self, kind: str, change: str, found: MutableManifest) -> None:
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        shown = copied(found)  # one for all, who leave it as it is
        for watcher in list(self._watchers):
            watcher(kind, change, shown)
        if kind == kueue.WORKLOAD and not self._admitting:
            self._admitting = True
            asyncio.get_running_loop().call_later(ADMIT_SECONDS, self._admit_workloads)

    def _admit_workloads(self) -> None:
        self._admitting = False
        self.schedule_workloads()

    def admit_again(self) -> None:
        """The quota has changed."""
        self._admit_workloads()

    def _called(self, verb: str) -> None:
        """Keeps no list of what was asked."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        written = await super().patch(resource, namespace, name, version, change, subresource)
        if resource is JOBS:
            self.counts.statuses[written["metadata"]["uid"], self._hour()] += 1
        return written

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        if resource is EVENTS:
            self.counts.events[str(manifest["regarding"].get("uid")), self._hour()] += 1
        elif resource is PODS:
            manifest = self._admit_pod(manifest, dry_run=dry_run)
        return await super().create(resource, manifest, strict=strict, dry_run=dry_run)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Manifest | None:
        if resource is WORKLOADS and self.trouble.keeps_workloads:
            raise ClusterError(500, 'failed calling webhook "policy": context deadline exceeded')
        return await super().delete(resource, namespace, name, uid, grace_seconds=grace_seconds)

    def _admit_pod(self, manifest: Manifest, *, dry_run: bool) -> Manifest:
        name, trouble = manifest["metadata"]["name"], self.trouble
        if trouble.denies_pods:
            raise ClusterError(
                403, f'admission webhook "policy" denied the request: pods "{name}" is not wanted'
            )
        there = sum(pod["status"].get("phase") not in ENDED for pod in self.all_of("Pod"))
        if trouble.pods is not None and there >= trouble.pods and not dry_run:
            used = f"requested: pods=1, used: pods={there}, limited: pods={trouble.pods}"
            raise ClusterError(
                403,
                f'pods "{name}" is forbidden: exceeded quota: compute, {used}',
                reason="Forbidden",
            )
        if not dry_run:
            self.counts.pods[
                str(manifest["metadata"]["ownerReferences"][0]["uid"]), self._hour()
            ] += 1
        if trouble.rewrites:
            labels = {**manifest["metadata"]["labels"], OWN_LABEL: "policy"}
            manifest = {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}
        return manifest

    def _schedule(self) -> None:
        if not self._scheduling and self._pending:
            self._scheduling = True
            asyncio.get_running_loop().call_later(SCHEDULE_SECONDS, self._bind_pods)

    def _bind_pods(self) -> None:
        """Binds each pod that waits to the node with room that suits it best."""
        self._scheduling = False
        load: Counter[str] = Counter(
            pod["spec"]["nodeName"]
            for pod in self.all_of("Pod")
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED
        )
        nodes = self.all_of("Node")
        for place in list(self._pending):
            pod = self._objects.get(("Pod", *place))
            if pod is None:
                del self._pending[place]
                continue
            ranks = [(_suits(pod, node, load), node["metadata"]["name"]) for node in nodes]
            suitable = [(rank, load[name], name) for rank, name in ranks if rank is not None]
            if suitable:
                _, _, node_name = min(suitable)
                load[node_name] += 1
                del self._pending[place]
                pod["spec"]["nodeName"] = node_name
                pod["status"].pop("conditions", None)
            elif pod["status"].get("conditions"):
                continue
            else:
                message = f"0/{len(nodes)} nodes are available"
                refused = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": message,
                }
                pod["status"]["conditions"] = [refused]
            self._changed("Pod", "MODIFIED", pod)


def is_selected(kind: str, found: Manifest) -> bool:
    """Whether an object has the label by which the operator asks for those of its kind."""
    name, _, value = SELECTED.get(kind, "").partition("=")
    labels = found["metadata"].get("labels", {})
    return not name or (name in labels and value in ("", labels[name]))


def _suits(pod: Manifest, node: Manifest, load: Counter[str]) -> int | None:
    """How little a node suits a pod; None: not at all."""
    name, spec = node["metadata"]["name"], pod["spec"]
    ready = node["status"]["conditions"][0]["status"] == "True"
    if (
        not ready
        or node["spec"].get("unschedulable")
        or load[name] >= int(node["status"]["allocatable"]["pods"])
    ):
        return None
    taints = node["spec"].get("taints") or ()
    tolerated = {toleration.get("key") for toleration in spec.get("tolerations") or ()}
    if any(
        taint["effect"] != "PreferNoSchedule" and taint["key"] not in tolerated for taint in taints
    ):
        return None
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    ) or ()
    if required and not any(_matches(term, name) for term in required):
        return None
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return len(taints) + sum(not _matches(each["preference"], name) for each in preferred)


def _matches(term: Manifest, name: str) -> bool:
    return all(
        name not in field["values"]
        for field in term.get("matchFields") or ()
        if field["operator"] == "NotIn"
    )


class Connection:
    """A replica's way to the API server: a `Cluster`.

    Args:
        server: the API server.
        name: of the replica's pod.
        dice: decide how long each request takes, and whether it is refused.

    Attributes:
        strays: writes that were sent while another replica held the Lease.
        deleted: pods whose deletion it has asked for, unless that was refused.
    """

    namespaces: tuple[str, ...] = ()

    def __init__(self, server: Server, name: str, dice: random.Random) -> None:
        self._server, self._name, self._dice = server, name, dice
        self.strays: list[str] = []
        self.deleted: set[str] = set()
        self.is_cut = self.is_dead = False
        for verb in (WRITES | UNFENCED) - {"namespaces"}:
            setattr(self, verb, partial(self._ask, verb))

    async def _ask(self, verb: str, *arguments: Any, **options: Any) -> Any:
        if verb != "delete" or arguments[0] is not PODS:
            return await self._send(verb, *arguments, **options)
        self.deleted.add(arguments[2])
        try:
            return await self._send(verb, *arguments, **options)
        except ClusterError:
            self.deleted.discard(arguments[2])
            raise

    async def _send(self, verb: str, *arguments: Any, **options: Any) -> Any:
        trouble = self._server.trouble
        if verb in WRITES and arguments[0] is not LEASES and not self._may_write():
            self.strays.append(f"{verb} {arguments[0].kind}")
        await self._wait(trouble)
        fails = trouble.share > 0 and self._dice.random() < trouble.share
        fails = fails and (trouble.code != GONE or verb.startswith("list_"))
        if fails and trouble.code:
            raise ClusterError(
                trouble.code, "simulated", retry_after_seconds=1.0 if trouble.code == 429 else 0.0
            )
        if not fails or self._dice.random() < 0.5:
            answer = await getattr(self._server, verb)(*arguments, **options)
        await self._wait(trouble)
        if fails:
            await asyncio.sleep(NO_ANSWER_SECONDS)
            raise ClusterError(0, "no answer from the API server: simulated")
        return answer

    def _may_write(self) -> bool:
        """Whether no other replica holds the Lease, and this one still runs."""
        lease = self._server.find("Lease", OPERATOR, SYSTEM) or {}
        holder = str(lease.get("spec", {}).get("holderIdentity", ""))
        return self.is_dead or not holder or holder.startswith(self._name)

    async def _wait(self, trouble: Trouble) -> None:
        await asyncio.sleep(
            REQUEST_SECONDS * self._dice.expovariate(1.0)
            + trouble.seconds * self._dice.random() / 2
        )
        if self.is_dead:
            await asyncio.Event().wait()
        if self.is_cut:
            await asyncio.sleep(NO_ANSWER_SECONDS)
            raise ClusterError(0, "no answer from the API server: cut off")
