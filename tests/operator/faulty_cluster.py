"""A cluster in memory whose API server fails, is slow to answer, and stores what it likes."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest, copied
from elastic_pytorch_operator.api.resources import JOBS, PODS, Resource
from elastic_pytorch_operator.cluster.interface import Change, ClusterError

from tests.operator.counted_cluster import CountedCluster


def add_object(cluster: FakeCluster, kind: str, namespace: str, name: str) -> None:
    """Adds an empty object, such as those of the chart for the operator."""
    cluster._put(kind, namespace, {"metadata": {"namespace": namespace, "name": name}})


class FaultyCluster(CountedCluster):
    """A CountedCluster with further faults.

    Attributes:
        strict: of each pod that was to be created, whether an unknown field was to be an error.
        alters_status: `pruned`: a field of each status is dropped; `stored`: a text is stored as
            another one.
        unlistable: by namespace, the status code with which its lists are answered.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.strict: list[bool] = []
        self.alters_status = ""
        self.unlistable: dict[str, int] = {}
        self._delays: Counter[str] = Counter()
        self._released = asyncio.Event()
        self.held = 0

    def make_template(self, manifest: Manifest) -> Manifest:
        """Makes a template, or replaces a deleted one of its name: templates are immutable."""
        return copied(self._put(names.TEMPLATE_KIND, "", copied(dict(manifest))))

    def remove_template(self, name: str) -> None:
        self._remove(names.TEMPLATE_KIND, "", name)

    def remove_claim(self, name: str) -> None:
        self._remove("PersistentVolumeClaim", "default", name)

    def delay_next(self, verb: str) -> None:
        """Carries the next use of a verb out, and keeps the answer back."""
        self._delays[verb] += 1

    def release(self) -> None:
        """Lets all answers go that are kept back."""
        self._released.set()

    async def _hold(self, verb: str) -> None:
        if self._delays[verb]:
            self._delays[verb] -= 1
            self.held += 1
            await self._released.wait()

    def _refuse(self, namespace: str) -> None:
        if namespace in self.unlistable:
            raise ClusterError(self.unlistable[namespace], f"cannot list {namespace}")

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        self._refuse(namespace)
        answer = await super().list_all(resource, namespace)
        await self._hold(f"list {resource.kind}")
        return answer

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        if resource is PODS and not dry_run:
            self.strict.append(strict)
        answer = await super().create(resource, manifest, strict=strict, dry_run=dry_run)
        await self._hold(f"create {resource.kind}")
        return answer

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        if resource is not JOBS or not isinstance(change, Mapping):
            return await super().patch(resource, namespace, name, version, change, subresource)
        if self.alters_status:
            status = dict(change["status"])
            status.pop("selector", None)
            if self.alters_status == "stored":
                status["selector"] = "\ufffd"
            change = {"status": status}
        before = self.job(name, namespace)
        answer = await super().patch(resource, namespace, name, version, change, subresource)
        await self._hold("patch ElasticPyTorchJob/status")
        return (
            {**answer, "metadata": before["metadata"]}
            if answer["status"] == before["status"]
            else answer
        )
