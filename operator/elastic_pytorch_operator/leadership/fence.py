"""A cluster that only the leader may write to: each write asks whether this replica still leads.

A write that was sent while it led may arrive when it no longer leads. Status writes therefore name the version that they are based on,
deletions the UID, and the next plan discards a surplus pod.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError, PodIdentity, TokenKeys, WorkloadPart


class NotLeadingError(ClusterError):
    """A write was not sent, because this replica does not lead."""

    def __init__(self) -> None:
        super().__init__(0, "this replica does not lead")


class FencedCluster:
    """A Cluster whose writes fail unless they are allowed.

    Args:
        cluster: the cluster itself.
        may_write: is asked before each write.
    """

    def __init__(self, cluster: Cluster, may_write: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._may_write = may_write
        self._writing = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def drained(self) -> None:
        """Waits until no write is on its way."""
        await self._idle.wait()

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[Cluster]:
        if not self._may_write():
            raise NotLeadingError
        self._writing += 1
        self._idle.clear()
        try:
            yield self._cluster
        finally:
            self._writing -= 1
            if not self._writing:
                self._idle.set()

    async def list_jobs(self) -> list[Manifest]:
        return await self._cluster.list_jobs()

    async def list_pods(self) -> list[Manifest]:
        return await self._cluster.list_pods()

    async def list_nodes(self) -> list[Manifest]:
        return await self._cluster.list_nodes()

    async def get_service(self, namespace: str, name: str) -> Manifest:
        return await self._cluster.get_service(namespace, name)

    async def create_service(self, manifest: Manifest) -> Manifest:
        async with self._write() as cluster:
            return await cluster.create_service(manifest)

    async def get_claim(self, namespace: str, name: str) -> Manifest:
        return await self._cluster.get_claim(namespace, name)

    async def create_claim(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        async with self._write() as cluster:
            return await cluster.create_claim(manifest, dry_run=dry_run)

    async def get_pod_group(self, api_version: str, namespace: str, name: str) -> Manifest | None:
        return await self._cluster.get_pod_group(api_version, namespace, name)

    async def put_pod_group(self, manifest: Manifest, *, dry_run: bool = False) -> None:
        async with self._write() as cluster:
            await cluster.put_pod_group(manifest, dry_run=dry_run)

    async def delete_pod_group(self, api_version: str, namespace: str, name: str, uid: str) -> None:
        async with self._write() as cluster:
            await cluster.delete_pod_group(api_version, namespace, name, uid)

    async def create_pod(self, manifest: Manifest, *, strict: bool = False, dry_run: bool = False) -> Manifest:
        async with self._write() as cluster:
            return await cluster.create_pod(manifest, strict=strict, dry_run=dry_run)

    async def delete_pod(self, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None) -> Manifest | None:
        async with self._write() as cluster:
            return await cluster.delete_pod(namespace, name, uid, grace_seconds=grace_seconds)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        async with self._write() as cluster:
            await cluster.delete_job(namespace, name, uid)

    async def patch_job_status(self, namespace: str, name: str, status: Manifest, version: str) -> Manifest:
        async with self._write() as cluster:
            return await cluster.patch_job_status(namespace, name, status, version)

    async def list_workloads(self) -> list[Manifest]:
        return await self._cluster.list_workloads()

    async def create_workload(self, manifest: Manifest) -> Manifest:
        async with self._write() as cluster:
            return await cluster.create_workload(manifest)

    async def get_workload(self, namespace: str, name: str) -> Manifest:
        return await self._cluster.get_workload(namespace, name)

    async def patch_workload(
        self, namespace: str, name: str, patch: Manifest, version: str, part: WorkloadPart = "spec"
    ) -> Manifest | None:
        async with self._write() as cluster:
            return await cluster.patch_workload(namespace, name, patch, version, part)

    async def resize_workload(self, namespace: str, name: str, count: int, version: str) -> Manifest | None:
        async with self._write() as cluster:
            return await cluster.resize_workload(namespace, name, count, version)

    async def delete_workload(self, namespace: str, name: str, uid: str) -> None:
        async with self._write() as cluster:
            await cluster.delete_workload(namespace, name, uid)

    async def get_resource_flavor(self, name: str) -> Manifest:
        return await self._cluster.get_resource_flavor(name)

    async def get_workload_priority_class(self, name: str) -> Manifest:
        return await self._cluster.get_workload_priority_class(name)

    async def list_priority_classes(self) -> list[Manifest]:
        return await self._cluster.list_priority_classes()

    async def create_event(self, manifest: Manifest) -> None:
        async with self._write() as cluster:
            await cluster.create_event(manifest)

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        return await self._cluster.review_token(token, audience)

    async def get_token_keys(self) -> TokenKeys:
        return await self._cluster.get_token_keys()

    async def get_lease(self, namespace: str, name: str) -> Manifest | None:
        return await self._cluster.get_lease(namespace, name)

    async def put_lease(self, manifest: Manifest) -> Manifest:
        return await self._cluster.put_lease(manifest)

    async def get_endpoint_slice(self, namespace: str, name: str) -> Manifest | None:
        return await self._cluster.get_endpoint_slice(namespace, name)

    async def put_endpoint_slice(self, manifest: Manifest) -> Manifest:
        async with self._write() as cluster:
            return await cluster.put_endpoint_slice(manifest)

    async def get_secret(self, namespace: str, name: str) -> Manifest | None:
        return await self._cluster.get_secret(namespace, name)

    async def put_secret(self, manifest: Manifest) -> Manifest:
        async with self._write() as cluster:
            return await cluster.put_secret(manifest)

    async def list_labelled_pods(self, namespace: str, selector: str) -> list[Manifest]:
        return await self._cluster.list_labelled_pods(namespace, selector)

    async def label_pod(self, namespace: str, name: str, label: str, value: str | None) -> None:
        async with self._write() as cluster:
            await cluster.label_pod(namespace, name, label, value)
