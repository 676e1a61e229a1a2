"""A cluster in memory that notes its calls, fails on demand, and knows users."""

from typing import Any

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import Resource
from elastic_pytorch_operator.cluster.interface import (
    Change,
    ClusterError,
    PodIdentity,
    TokenKeys,
)


class CountedCluster(FakeCluster):
    """A FakeCluster whose calls are noted, and may fail.

    Attributes:
        calls: such as `create Pod`, `try Pod` for a dry run, or `patch ElasticPyTorchJob/status`.
        users: by token for the API server.
        readers: users, and paths that they may get.
    """

    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.users: dict[str, str] = {}
        self.readers: set[tuple[str, str]] = set()
        self._faults: dict[str, list[ClusterError]] = {}
        super().__init__(**options)

    def fail_next(self, verb: str, code: int, message: str = "injected", **status: Any) -> None:
        """Has the next use of a verb fail."""
        self._faults.setdefault(verb, []).append(ClusterError(code, message, **status))

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self._faults.get(verb):
            raise self._faults[verb].pop(0)

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        self._called(f"list {resource.kind}")
        return await super().list_all(resource, namespace)

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        self._called(f"get {resource.kind}")
        return await super().get(resource, namespace, name)

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        self._called(f"{'try' if dry_run else 'create'} {resource.kind}")
        return await super().create(resource, manifest, strict=strict, dry_run=dry_run)

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        self._called(f"{'try' if dry_run else 'replace'} {resource.kind}")
        return await super().replace(resource, manifest, strict=strict, dry_run=dry_run)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        self._called(f"patch {resource.kind}{subresource and '/'}{subresource}")
        return await super().patch(resource, namespace, name, version, change, subresource)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Manifest | None:
        self._called(f"delete {resource.kind}")
        return await super().delete(resource, namespace, name, uid, grace_seconds=grace_seconds)

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        self._called("review_token")
        return await super().review_token(token, audience)

    async def review_user(self, token: str) -> Manifest | None:
        self._called("review_user")
        return {"username": self.users[token]} if token in self.users else None

    async def review_read(self, user: Manifest, path: str) -> bool:
        self._called("review_read")
        return (user["username"], path) in self.readers

    async def get_token_keys(self) -> TokenKeys:
        self._called("get_token_keys")
        return await super().get_token_keys()
