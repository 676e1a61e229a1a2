"""A cluster in memory: the same verbs, with garbage collection and a scheduler.

Local mode runs on it with `LocalKubelet`, fast tests with a kubelet of their own or none.
"""

import secrets
from collections import Counter, deque

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, copied
from elastic_pytorch_operator.api.resources import EVENTS, JOBS, PODS, Resource
from elastic_pytorch_operator.cluster.interface import Change, ClusterError, PodIdentity, TokenKeys

from elastic_pytorch_local.cluster.object_store import ObjectStore, apply_patch, check_version

DEFAULT_PODS_PER_NODE = 16
MAX_EVENTS = 1000  # the newest
ENDED = ("Succeeded", "Failed")


class FakeCluster(ObjectStore):
    namespaces: tuple[str, ...] = ()  # that the operator watches; none: all

    def __init__(self, nodes: int = 3, pods_per_node: int = DEFAULT_PODS_PER_NODE) -> None:
        super().__init__()
        self.events: deque[Manifest] = deque(maxlen=MAX_EVENTS)
        self._tokens: dict[str, PodIdentity] = {}
        for number in range(nodes):
            self.add_node(f"node-{number}", pods_per_node)

    def add_node(self, name: str, pods: int = DEFAULT_PODS_PER_NODE) -> None:
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"pods": str(pods)},
        }
        self._put("Node", "", {"metadata": {"name": name}, "spec": {}, "status": status})
        self._schedule()

    def apply_job(self, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", "default")
        known = self._objects.get((names.KIND, namespace, metadata["name"]))
        if known is None:
            job = copied({**manifest, "status": {}})
            job["metadata"] = {**job["metadata"], "namespace": namespace, "generation": 1}
            return copied(self._put(names.KIND, namespace, job))
        if known["spec"] != manifest["spec"]:
            known["spec"] = copied(manifest["spec"])
            known["metadata"]["generation"] += 1
            self._changed(names.KIND, "MODIFIED", known)
        return copied(known)

    def scale_job(self, name: str, replicas: int, namespace: str = "default") -> None:
        job = self._get(names.KIND, namespace, name)
        self.apply_job({**job, "spec": {**job["spec"], "replicas": replicas}})

    def remove_job(self, name: str, namespace: str = "default") -> None:
        uid = self._remove(names.KIND, namespace, name)["metadata"]["uid"]
        for (kind, place, child), found in list(self._objects.items()):
            owners = found["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] == uid for owner in owners):
                if kind == "Pod":
                    self.begin_deletion(place, child)
                else:
                    self._remove(kind, place, child)

    def job(self, name: str, namespace: str = "default") -> MutableManifest:
        return copied(self._get(names.KIND, namespace, name))

    def pods(self, namespace: str = "default") -> list[MutableManifest]:
        return self._list("Pod", namespace)

    def has_pod(self, namespace: str, name: str) -> bool:
        return ("Pod", namespace, name) in self._objects

    def set_pod_status(self, namespace: str, name: str, status: Manifest) -> None:
        """Merges fields into a pod's status, as a kubelet does; ignores a pod that is gone."""
        pod = self._objects.get(("Pod", namespace, name))
        if pod is not None:
            pod["status"] = {**pod["status"], **copied(status)}
            self._changed("Pod", "MODIFIED", pod)
            self._schedule()

    def begin_deletion(self, namespace: str, name: str) -> None:
        """Marks a pod as being deleted, until its kubelet calls `finish_deletion`.

        Unscheduled pods go at once.
        """
        pod = self._objects.get(("Pod", namespace, name))
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ENDED:
            self.finish_deletion(namespace, name)
            return
        pod["metadata"]["deletionTimestamp"] = "2000-01-01T00:00:00Z"
        self._changed("Pod", "MODIFIED", pod)

    def finish_deletion(self, namespace: str, name: str) -> None:
        if self.has_pod(namespace, name):
            self._remove("Pod", namespace, name)
            self._schedule()

    def issue_token(self, namespace: str, name: str) -> str:
        pod = self._get("Pod", namespace, name)
        token = secrets.token_urlsafe(32)
        self._tokens[token] = PodIdentity(namespace, name, pod["metadata"]["uid"])
        return token

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        return self._list(resource.kind, namespace)

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        return copied(self._get(resource.kind, namespace, name))

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        if resource is EVENTS:
            self.events.append(copied(manifest))
            return manifest
        self._check_name(resource.kind, manifest)
        if dry_run:
            return copied(manifest)
        started = {"status": {"phase": "Pending"}} if resource is PODS else {}
        namespace = manifest["metadata"]["namespace"]
        created = self._put(resource.kind, namespace, copied({**manifest, **started}))
        if resource is PODS:
            self._schedule()
        return copied(created)

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        metadata = manifest["metadata"]
        known = self._get(resource.kind, metadata["namespace"], metadata["name"])
        check_version(known, metadata.get("resourceVersion", ""))
        if dry_run:
            return copied(manifest)
        own = {"uid": known["metadata"]["uid"]}
        known.clear()
        known.update(copied({**manifest, "kind": resource.kind, "metadata": {**metadata, **own}}))
        self._changed(resource.kind, "MODIFIED", known)
        return copied(known)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        found = self._get(resource.kind, namespace, name)
        check_version(found, version)
        found.update(apply_patch(found, change))
        self._changed(resource.kind, "MODIFIED", found)
        return copied(found)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Manifest | None:
        found = self._objects.get((resource.kind, namespace, name))
        if found is None or found["metadata"]["uid"] != uid:
            return None
        if resource is JOBS:
            self.remove_job(name, namespace)
        elif resource is not PODS:
            self._remove(resource.kind, namespace, name)
        elif grace_seconds == 0:
            self.finish_deletion(namespace, name)
        else:
            self.begin_deletion(namespace, name)
        return copied(self._objects.get((resource.kind, namespace, name)))

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        return self._tokens.get(token) if audience == names.TOKEN_AUDIENCE else None

    async def review_user(self, token: str) -> Manifest | None:
        return None

    async def review_read(self, user: Manifest, path: str) -> bool:
        return False

    async def get_token_keys(self) -> TokenKeys:
        raise ClusterError(404, "the tokens of this cluster have no signature")

    def _schedule(self) -> None:
        """Binds Pending pods to the ready node with the fewest pods, while there is room."""
        pods = [o for (kind, _, _), o in self._objects.items() if kind == "Pod"]
        live = (pod for pod in pods if pod["status"].get("phase") not in ENDED)
        load = Counter(pod["spec"].get("nodeName") for pod in live)
        nodes = {
            name: int(node["status"]["allocatable"]["pods"])
            for (kind, _, name), node in self._objects.items()
            if kind == "Node"
            and not node["spec"].get("unschedulable")
            and node["status"]["conditions"][0]["status"] == "True"
        }
        for pod in pods:
            if pod["spec"].get("nodeName"):
                continue
            if room := [name for name, places in nodes.items() if load[name] < places]:
                pod["spec"]["nodeName"] = min(room, key=lambda name: (load[name], name))
                load[pod["spec"]["nodeName"]] += 1
                pod["status"].pop("conditions", None)
            elif pod["status"].get("conditions"):
                continue
            else:
                message = f"0/{len(self._list('Node'))} nodes have room for another pod"
                refused = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": message,
                }
                pod["status"]["conditions"] = [refused]
            self._changed("Pod", "MODIFIED", pod)
