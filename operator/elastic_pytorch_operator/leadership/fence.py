"""A cluster that only the leader may write to: each write asks whether this replica still leads.

A write that was sent while it led may arrive when it no longer leads. Status writes therefore name the version that they are based on,
deletions the UID, and the next plan discards a surplus pod.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError

# A verb that is in neither list cannot be used.
WRITES: Final = frozenset({
    "create_claim", "create_event", "create_pod", "create_service", "create_workload",
    "delete_job", "delete_pod", "delete_pod_group", "delete_workload",
    "patch_job_status", "patch_workload", "resize_workload",
    "put_endpoint_slice", "put_pod_group", "put_secret",
})  # fmt: skip
# A replica has to write the Lease to lead.
UNFENCED: Final = frozenset({
    "get_claim", "get_endpoint_slice", "get_lease", "get_pod_group", "get_resource_flavor", "get_secret", "get_service",
    "get_template", "get_token_keys", "get_workload_priority_class",
    "list_jobs", "list_nodes", "list_pods", "list_priority_classes", "list_workloads",
    "namespaces", "put_lease", "review_read", "review_token", "review_user",
})  # fmt: skip


class NotLeadingError(ClusterError):
    """A write was not sent, because this replica does not lead."""

    def __init__(self) -> None:
        super().__init__(0, "this replica does not lead")


class Fence:
    """Lets writes through as long as they are allowed.

    Attributes:
        cluster: the same, whose writes raise NotLeadingError unless they are allowed.
    """

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

    async def _write(self, send: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        if not self._may_write():
            raise NotLeadingError
        self._writing += 1
        self._idle.clear()
        try:
            return await send(*arguments, **options)
        finally:
            self._writing -= 1
            if not self._writing:
                self._idle.set()
