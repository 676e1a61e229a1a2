"""A cluster in memory: the same verbs, with UIDs, resource versions, garbage collection, a scheduler and faults on demand.

Local mode runs on it with `LocalKubelet`; the fast tests run on it with a kubelet of their own or none.
"""

import secrets
from collections.abc import Callable

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, copied
from elastic_pytorch_operator.cluster.interface import ClusterError, PodIdentity, TokenKeys, WorkloadPart

from elastic_pytorch_local.cluster.object_store import ObjectStore, apply_merge_patch, check_version

DEFAULT_PODS_PER_NODE = 16


class FakeCluster(ObjectStore):
    namespaces: tuple[str, ...] = ()  # that the operator watches; none: all

    def __init__(self, nodes: int = 3, pods_per_node: int = DEFAULT_PODS_PER_NODE) -> None:
        super().__init__()
        self.events: list[Manifest] = []
        self._tokens: dict[str, PodIdentity] = {}
        self.users: dict[str, str] = {}  # by token for the API server
        # Which user may get which path that is no resource.
        self.readers: set[tuple[str, str]] = set()
        for number in range(nodes):
            self.add_node(f"node-{number}", pods_per_node)

    def add_node(self, name: str, pods: int = DEFAULT_PODS_PER_NODE) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": str(pods)}}
        self._put("Node", "", {"metadata": {"name": name}, "spec": {}, "status": status})
        self._schedule()

    def set_node_ready(self, name: str, ready: bool) -> None:
        node = self._get("Node", "", name)
        node["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
        self._changed("Node", "MODIFIED", node)
        self._schedule()

    def add_object(self, kind: str, namespace: str, name: str) -> None:
        """Adds an empty object, such as those that the chart renders for the operator."""
        self._put(kind, namespace, {"metadata": {"namespace": namespace, "name": name}})

    def apply_job(self, manifest: Manifest) -> Manifest:
        """`kubectl apply`: creates the job, or replaces its spec."""
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

    def make_template(self, manifest: Manifest) -> Manifest:
        """Makes a template, which replaces one of its name: as it is immutable, that one has been deleted."""
        return copied(self._put(names.TEMPLATE_KIND, "", copied(dict(manifest))))

    def remove_template(self, name: str) -> None:
        self._remove(names.TEMPLATE_KIND, "", name)

    def remove_claim(self, name: str, namespace: str = "default") -> None:
        self._remove("PersistentVolumeClaim", namespace, name)

    def job(self, name: str, namespace: str = "default") -> MutableManifest:
        return copied(self._get(names.KIND, namespace, name))

    def pods(self, namespace: str = "default") -> list[MutableManifest]:
        found = [o for (kind, place, _), o in sorted(self._objects.items()) if kind == "Pod" and place == namespace]
        return copied(found)

    def set_pod_status(self, namespace: str, name: str, status: Manifest) -> None:
        """What a kubelet does: merges fields into a pod's status; a pod that has gone is left alone."""
        pod = self._objects.get(("Pod", namespace, name))
        if pod is not None:
            pod["status"] = {**pod["status"], **copied(status)}
            self._changed("Pod", "MODIFIED", pod)
            self._schedule()

    def begin_deletion(self, namespace: str, name: str) -> None:
        """Marks a pod as being deleted; its kubelet confirms with `finish_deletion`. Unscheduled pods go at once."""
        pod = self._objects.get(("Pod", namespace, name))
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.finish_deletion(namespace, name)
            return
        pod["metadata"]["deletionTimestamp"] = "2000-01-01T00:00:00Z"
        self._changed("Pod", "MODIFIED", pod)

    def finish_deletion(self, namespace: str, name: str) -> None:
        if ("Pod", namespace, name) in self._objects:
            self._remove("Pod", namespace, name)
            self._schedule()

    def issue_token(self, namespace: str, name: str) -> str:
        """A token for a pod, as a kubelet would get it."""
        pod = self._get("Pod", namespace, name)
        token = secrets.token_urlsafe(32)
        self._tokens[token] = PodIdentity(namespace, name, pod["metadata"]["uid"])
        return token

    async def list_jobs(self, namespace: str = "") -> list[Manifest]:
        self._called("list_jobs")
        return self._list(names.KIND, namespace)

    async def list_pods(self, namespace: str = "") -> list[Manifest]:
        self._called("list_pods")
        return self._list("Pod", namespace)

    async def list_nodes(self) -> list[Manifest]:
        self._called("list_nodes")
        return self._list("Node")

    async def get_service(self, namespace: str, name: str) -> Manifest:
        self._called("get_service")
        return copied(self._get("Service", namespace, name))

    async def create_service(self, manifest: Manifest) -> Manifest:
        self._called("create_service")
        return copied(self._create("Service", manifest))

    async def get_claim(self, namespace: str, name: str) -> Manifest:
        self._called("get_claim")
        return copied(self._get("PersistentVolumeClaim", namespace, name))

    async def create_claim(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        self._called("dry_run_claim" if dry_run else "create_claim")
        self._check_name("PersistentVolumeClaim", manifest)
        if dry_run:
            return copied(manifest)
        return copied(self._create("PersistentVolumeClaim", manifest))

    async def get_pod_group(self, api_version: str, namespace: str, name: str) -> Manifest | None:
        self._called("get_pod_group")
        found = self._objects.get(("PodGroup", namespace, name))
        return copied(found) if found is not None and found["apiVersion"] == api_version else None

    async def put_pod_group(self, manifest: Manifest, *, dry_run: bool = False) -> None:
        self._called("dry_run_pod_group" if dry_run else "put_pod_group")
        if dry_run:
            return
        metadata = manifest["metadata"]
        if not metadata.get("resourceVersion"):
            self._create("PodGroup", manifest)
            return
        group = self._get("PodGroup", metadata["namespace"], metadata["name"])
        check_version(group, metadata["resourceVersion"])
        group["spec"] = copied(manifest["spec"])
        self._changed("PodGroup", "MODIFIED", group)

    async def delete_pod_group(self, api_version: str, namespace: str, name: str, uid: str) -> None:
        self._called("delete_pod_group")
        found = self._objects.get(("PodGroup", namespace, name))
        if found is not None and found["metadata"]["uid"] == uid:
            self._remove("PodGroup", namespace, name)

    async def create_pod(self, manifest: Manifest, *, strict: bool = False, dry_run: bool = False) -> Manifest:
        self._called("dry_run_pod" if dry_run else "create_pod")
        if dry_run:
            return copied(manifest)
        pod = self._create("Pod", {**manifest, "status": {"phase": "Pending"}})
        self._schedule()
        return copied(pod)

    async def delete_pod(self, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None) -> Manifest | None:
        self._called("delete_pod")
        pod = self._objects.get(("Pod", namespace, name))
        if pod is None or pod["metadata"]["uid"] != uid:
            return None
        if grace_seconds == 0:
            self.finish_deletion(namespace, name)
        else:
            self.begin_deletion(namespace, name)
        left = self._objects.get(("Pod", namespace, name))
        return copied(left)

    async def get_template(self, name: str) -> Manifest:
        self._called("get_template")
        return copied(self._get(names.TEMPLATE_KIND, "", name))

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        self._called("delete_job")
        job = self._objects.get((names.KIND, namespace, name))
        if job is not None and job["metadata"]["uid"] == uid:
            self.remove_job(name, namespace)

    async def patch_job_status(self, namespace: str, name: str, status: Manifest, version: str) -> Manifest:
        self._called("patch_job_status")
        job = self._get(names.KIND, namespace, name)
        check_version(job, version)
        job["status"] = apply_merge_patch(job.get("status", {}), status)
        self._changed(names.KIND, "MODIFIED", job)
        return copied(job)

    async def list_workloads(self, namespace: str = "") -> list[Manifest]:
        self._called("list_workloads")
        return self._list(kueue.WORKLOAD, namespace)

    async def create_workload(self, manifest: Manifest) -> Manifest:
        self._called("create_workload")
        return copied(self._create(kueue.WORKLOAD, manifest))

    async def patch_workload(
        self, namespace: str, name: str, patch: Manifest, version: str, part: WorkloadPart = "spec"
    ) -> Manifest | None:
        self._called("patch_workload_status" if part == "status" else "patch_workload")
        return self._change_workload(
            namespace, name, version, lambda found: {part: apply_merge_patch(found.get(part, {}), patch)}
        )

    async def resize_workload(self, namespace: str, name: str, count: int, version: str) -> Manifest | None:
        self._called("resize_workload")

        def resize(found: Manifest) -> MutableManifest:
            (pods,) = found["spec"]["podSets"]
            return {"spec": {**found["spec"], "podSets": [{**pods, "count": count}]}}

        return self._change_workload(namespace, name, version, resize)

    async def delete_workload(self, namespace: str, name: str, uid: str) -> None:
        self._called("delete_workload")
        workload = self._objects.get((kueue.WORKLOAD, namespace, name))
        if workload is not None and workload["metadata"]["uid"] == uid:
            self._remove(kueue.WORKLOAD, namespace, name)

    async def get_resource_flavor(self, name: str) -> Manifest:
        self._called("get_resource_flavor")
        return copied(self._get("ResourceFlavor", "", name))

    async def get_workload_priority_class(self, name: str) -> Manifest:
        self._called("get_workload_priority_class")
        return copied(self._get("WorkloadPriorityClass", "", name))

    async def list_priority_classes(self) -> list[Manifest]:
        self._called("list_priority_classes")
        return self._list("PriorityClass")

    async def create_event(self, manifest: Manifest) -> None:
        self._called("create_event")
        self.events.append(copied(manifest))

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        self._called("review_token")
        return self._tokens.get(token) if audience == names.TOKEN_AUDIENCE else None

    async def review_user(self, token: str) -> Manifest | None:
        self._called("review_user")
        return {"username": self.users[token]} if token in self.users else None

    async def review_read(self, user: Manifest, path: str) -> bool:
        self._called("review_read")
        return (user["username"], path) in self.readers

    async def get_token_keys(self) -> TokenKeys:
        self._called("get_token_keys")
        raise ClusterError(404, "the tokens of this cluster have no signature")

    async def get_lease(self, namespace: str, name: str) -> Manifest:
        self._called("get_lease")
        return copied(self._get("Lease", namespace, name))

    async def put_lease(self, manifest: Manifest) -> Manifest:
        self._called("put_lease")
        return self._replace("Lease", manifest)

    async def get_endpoint_slice(self, namespace: str, name: str) -> Manifest:
        self._called("get_endpoint_slice")
        return copied(self._get("EndpointSlice", namespace, name))

    async def put_endpoint_slice(self, manifest: Manifest) -> Manifest:
        self._called("put_endpoint_slice")
        return self._replace("EndpointSlice", manifest)

    async def get_secret(self, namespace: str, name: str) -> Manifest:
        self._called("get_secret")
        return copied(self._get("Secret", namespace, name))

    async def put_secret(self, manifest: Manifest) -> Manifest:
        self._called("put_secret")
        return self._replace("Secret", manifest)

    def _replace(self, kind: str, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        known = self._get(kind, metadata["namespace"], metadata["name"])
        check_version(known, metadata.get("resourceVersion", ""))
        own = {"uid": known["metadata"]["uid"]}
        known.clear()
        known.update(copied({**manifest, "kind": kind, "metadata": {**metadata, **own}}))
        self._changed(kind, "MODIFIED", known)
        return copied(known)

    def _change_workload(
        self, namespace: str, name: str, version: str, change: Callable[[Manifest], MutableManifest]
    ) -> Manifest | None:
        """Replaces parts of a Workload that has this version."""
        workload = self._objects.get((kueue.WORKLOAD, namespace, name))
        if workload is None:
            return None
        check_version(workload, version)
        changed = {**workload, **change(workload)}
        self.check_workload(workload, changed)
        workload.update(changed)
        self._changed(kueue.WORKLOAD, "MODIFIED", workload)
        return copied(workload)

    def check_workload(self, before: Manifest, after: Manifest) -> None:
        """What admission says of a change of a Workload: nothing, where Kueue is not installed."""

    def _schedule(self) -> None:
        """Binds Pending pods to the ready node with the fewest pods, while there is room."""
        pods = [o for (kind, _, _), o in self._objects.items() if kind == "Pod"]
        for pod in pods:
            if pod["spec"].get("nodeName"):
                continue
            load: dict[str, int] = {}
            for (kind, _, name), node in self._objects.items():
                open_ = kind == "Node" and not node["spec"].get("unschedulable")
                if open_ and node["status"]["conditions"][0]["status"] == "True":
                    placed = [p for p in pods if p["spec"].get("nodeName") == name]
                    used = sum(p["status"].get("phase") not in ("Succeeded", "Failed") for p in placed)
                    if used < int(node["status"]["allocatable"]["pods"]):
                        load[name] = used
            if load:
                pod["spec"]["nodeName"] = min(load, key=lambda name: (load[name], name))
                pod["status"].pop("conditions", None)
            elif pod["status"].get("conditions"):
                continue
            else:
                message = f"0/{len(self._list('Node'))} nodes have room for another pod"
                refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
                pod["status"]["conditions"] = [refused]
            self._changed("Pod", "MODIFIED", pod)
