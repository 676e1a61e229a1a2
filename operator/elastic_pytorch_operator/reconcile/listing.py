"""Lists the cluster by namespace: one that is gone or refused must not hide the others."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import JOBS, NODES, PODS, WORKLOADS
from elastic_pytorch_operator.api.write_errors import UNAVAILABLE_CODES
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError

MAX_AT_ONCE = 10  # namespaces: each lists its jobs, then its pods, then its Workloads
Lists = tuple[list[Manifest], list[Manifest], list[Manifest]]  # jobs, pods and Workloads


@dataclass(frozen=True, slots=True)
class Listing:
    jobs: list[Manifest]
    pods: list[Manifest]
    nodes: list[Manifest]
    workloads: list[Manifest]
    failed: Mapping[str, ClusterError]  # by namespace

    @property
    def trouble(self) -> ClusterError | None:
        """The first error that is no refusal, and may pass by itself."""
        errors = self.failed.values()
        return next((error for error in errors if error.code not in UNAVAILABLE_CODES), None)


async def list_cluster(cluster: Cluster, *, kueue: bool) -> Listing:
    """Lists all that the operator works on, and nodes last, so that no pod's node is missing.

    Raises:
        ClusterError: the nodes cannot be listed, or no namespace can.
    """
    places = tuple(cluster.namespaces) or ("",)
    answers = await _try_namespaces(cluster, places, kueue=kueue)
    found = zip(places, answers, strict=True)
    failed = {place: answer for place, answer in found if isinstance(answer, ClusterError)}
    if len(failed) == len(places):
        raise failed[places[0]]
    listed: list[Lists] = [found for found in answers if not isinstance(found, ClusterError)]
    joined = (list(chain.from_iterable(lists)) for lists in zip(*listed, strict=True))
    jobs, pods, workloads = joined
    return Listing(jobs, pods, await cluster.list_all(NODES), workloads, failed)


async def can_list_any(cluster: Cluster, namespaces: Collection[str], *, kueue: bool) -> bool:
    answers = await _try_namespaces(cluster, namespaces, kueue=kueue)
    return not all(isinstance(found, ClusterError) for found in answers)


async def _try_namespaces(
    cluster: Cluster, namespaces: Iterable[str], *, kueue: bool
) -> Sequence[Lists | ClusterError]:
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def ask(namespace: str) -> Lists | ClusterError:
        async with slots:
            try:
                jobs = await cluster.list_all(JOBS, namespace)
                pods = await cluster.list_all(PODS, namespace)
                return jobs, pods, await _list_workloads(cluster, namespace) if kueue else []
            except ClusterError as error:
                return error

    return await asyncio.gather(*map(ask, namespaces))


async def _list_workloads(cluster: Cluster, namespace: str) -> list[Manifest]:
    try:
        return await cluster.list_all(WORKLOADS, namespace)
    except ClusterError as error:
        if error.code != 404:
            raise
        return []
