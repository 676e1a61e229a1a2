"""Writes Kueue's Workloads, and reads the objects of Kueue that they and their pods refer to."""

import asyncio
import logging
from collections.abc import Callable

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.api.resources import (
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Change, Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.changes import Identity
from elastic_pytorch_operator.manifests.workload import (
    EXTRA_PRIORITY,
    PlacementConflict,
    base_priority,
    place_pod,
    workload,
)
from elastic_pytorch_operator.model.actions import (
    CreateWorkload,
    DeleteWorkload,
    PatchWorkload,
    ResizeWorkload,
    WorkloadAction,
)
from elastic_pytorch_operator.model.workload import BASE, Grant
from elastic_pytorch_operator.spec.job import Job

logger = logging.getLogger(__name__)


class WorkloadWriter:
    def __init__(self, cluster: Cluster, cache: Cache, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._clock = clock
        self._flavors: dict[str, Manifest] = {}

    def forget_flavors(self) -> None:
        self._flavors.clear()

    async def write(self, job: Job, action: WorkloadAction) -> None:
        namespace, written = job.key.namespace, None
        change: Change
        match action:
            case CreateWorkload():
                written = await self._create(job, action)
            case PatchWorkload(name, version, spec, status):
                change = {"status": status} if status else {"spec": spec}
                part = "status" if status else ""
                written = await self._change(namespace, name, version, change, part)
            case ResizeWorkload(name, version, count):
                change = [{"op": "replace", "path": "/spec/podSets/0/count", "value": count}]
                written = await self._change(namespace, name, version, change)
            case DeleteWorkload(name, uid, why):
                await self._cluster.delete(WORKLOADS, namespace, name, uid)
                gone = Identity(namespace, name, uid)
                self._cache.remove(kueue.WORKLOAD, gone, self._clock())
                facts = {"job": str(job.key), "workload": name, "why": why}
                logger.info("deleted workload", extra=facts)
        if written is not None:
            self._cache.note_written(kueue.WORKLOAD, written, self._clock())

    async def _change(
        self, namespace: str, name: str, version: str, change: Change, subresource: str = ""
    ) -> Manifest | None:
        try:
            patch = self._cluster.patch
            return await patch(WORKLOADS, namespace, name, version, change, subresource)
        except ClusterError as error:
            if error.code != 404:
                raise
            return None

    async def place(self, pod: MutableManifest, grant: Grant) -> None:
        """Raises ClusterError if a ResourceFlavor cannot be read, or contradicts the template."""
        flavors = await asyncio.gather(*map(self._flavor, grant.admission.flavors))
        try:
            place_pod(pod, grant, flavors)
        except PlacementConflict as conflict:
            words = str(conflict)
            raise ClusterError(409, words, judgement=Judgement.REFUSED, words=words) from None

    async def _create(self, job: Job, action: CreateWorkload) -> Manifest:
        assert job.queue is not None
        priority: MutableManifest
        if action.number != BASE:
            priority = {"priority": EXTRA_PRIORITY}
        elif name := job.queue.priority_class:
            found = await self._cluster.get(WORKLOAD_PRIORITY_CLASSES, "", name)
            priority = base_priority(job, [found])
        else:
            priority = base_priority(job, await self._cluster.list_all(PRIORITY_CLASSES))
        flavors = await asyncio.gather(*map(self._flavor, action.flavors))
        labels = {
            key: value
            for flavor in flavors
            for key, value in ((flavor.get("spec") or {}).get("nodeLabels") or {}).items()
        }
        created = await self._cluster.create(WORKLOADS, workload(job, action, priority, labels))
        facts = {"job": str(job.key), "workload": created["metadata"]["name"]}
        logger.info("created workload", extra=facts)
        return created

    async def _flavor(self, name: str) -> Manifest:
        if name not in self._flavors:
            self._flavors[name] = await self._cluster.get(RESOURCE_FLAVORS, "", name)
        return self._flavors[name]
