"""A cluster to which only the leader may write.

A write that was sent while this replica led may arrive when it no longer leads. So status writes
name the version that they change, deletions the UID, and the next plan discards a surplus pod.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from elastic_pytorch_operator.api.resources import LEASES, Resource
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError

# A verb that is in neither list cannot be used.
WRITES = frozenset({"create", "delete", "patch", "replace"})
UNFENCED = frozenset(
    {
        *("get", "get_token_keys", "list_all", "namespaces"),
        *("review_read", "review_token", "review_user"),
    }
)


class NotLeadingError(ClusterError):
    def __init__(self) -> None:
        super().__init__(0, "this replica does not lead")


class Fence:
    """Provides `cluster`, whose writes raise NotLeadingError unless they are allowed."""

    def __init__(self, cluster: Cluster, may_write: Callable[[], bool]) -> None:
        self._may_write = may_write
        self._writing = 0
        self._idle = asyncio.Event()
        self._idle.set()
        fenced = {verb: partial(self._write, getattr(cluster, verb)) for verb in WRITES}
        unfenced = {verb: getattr(cluster, verb) for verb in UNFENCED}
        self.cluster = cast(Cluster, SimpleNamespace(**fenced, **unfenced))

    async def drained(self) -> None:
        await self._idle.wait()

    async def _write(
        self,
        send: Callable[..., Awaitable[Any]],
        resource: Resource,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        if resource is LEASES:  # written in order to lead
            return await send(resource, *arguments, **options)
        if not self._may_write():
            raise NotLeadingError
        self._writing += 1
        self._idle.clear()
        try:
            return await send(resource, *arguments, **options)
        finally:
            self._writing -= 1
            if not self._writing:
                self._idle.set()
