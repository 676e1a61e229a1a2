import asyncio
import inspect

import pytest
from elastic_pytorch_operator.api.resources import LEASES, PODS
from elastic_pytorch_operator.cluster.interface import Cluster
from elastic_pytorch_operator.leadership.fence import UNFENCED, WRITES, Fence, NotLeadingError

from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object

POD = {"metadata": {"namespace": "team", "name": "lm-worker-0"}, "spec": {"containers": []}}
READING = ("get", "list_", "review_")
VERBS = {name for name, found in vars(Cluster).items() if inspect.iscoroutinefunction(found)}
ATTRIBUTES = {"namespaces"}


def test_every_verb_of_the_interface_is_fenced_or_needs_no_fence() -> None:
    without = {verb for verb in VERBS if verb.startswith(READING)}
    assert without | ATTRIBUTES == UNFENCED
    assert VERBS - without == WRITES


async def test_writes_are_sent_only_while_the_replica_leads() -> None:
    cluster, leads = CountedCluster(), False
    fenced = Fence(cluster, lambda: leads).cluster
    with pytest.raises(NotLeadingError):
        await fenced.create(PODS, POD, strict=True)
    assert cluster.calls == []
    assert await fenced.list_all(PODS) == []
    leads = True
    await fenced.create(PODS, POD, strict=True)
    assert cluster.calls == ["list Pod", "create Pod"]


async def test_lease_may_be_written_by_a_replica_that_does_not_lead_yet() -> None:
    cluster = CountedCluster()
    add_object(cluster, "Lease", "system", "lease")
    fenced = Fence(cluster, lambda: False).cluster
    await fenced.replace(LEASES, await fenced.get(LEASES, "system", "lease"))
    assert cluster.calls == ["get Lease", "replace Lease"]


class SlowCluster(CountedCluster):
    """Carries out a deletion of a pod once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def delete(self, *_arguments: object, **_options: object) -> None:
        await self.may_go_on.wait()
        raise RuntimeError("refused")


async def test_drained_means_that_no_write_is_on_its_way() -> None:
    cluster = SlowCluster()
    fence = Fence(cluster, lambda: True)
    await fence.drained()
    deletions = [
        asyncio.create_task(fence.cluster.delete(PODS, "team", "lm-worker-0", "uid"))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    drained = asyncio.create_task(fence.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    cluster.may_go_on.set()
    await asyncio.gather(*deletions, return_exceptions=True)
    await drained
