import asyncio
from collections import Counter
from typing import ClassVar

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_manifest

DAY_SECONDS = 24 * 3600.0
BROKEN = JobKey("default", "broken")


class FaultyController(Controller):
    """Cannot plan one job."""

    plans: ClassVar[Counter[JobKey]] = Counter()

    def reconcile(self, key: JobKey) -> str:
        self.plans[key] += 1
        if key == BROKEN:
            raise KeyError("a fault of the operator's own")
        return super().reconcile(key)


@pytest.mark.parametrize(
    ("seconds", "news_each_seconds", "most"), [(300.0, 0.1, 25), (DAY_SECONDS, 3600.0, 3000)]
)
async def test_job_that_cannot_be_planned_is_tried_less_and_less_often_and_concerns_no_other(
    caplog: pytest.LogCaptureFixture, seconds: float, news_each_seconds: float, most: int
) -> None:
    clock = asyncio.get_running_loop().time
    cluster, cache, queue = FakeCluster(), Cache(), WorkQueue[JobKey](clock=clock)
    controller = FaultyController(
        cluster,
        cache,
        AgentRegistry(),
        queue,
        AgentSettings("http://operator"),
        clock,
        slots=WriteSlots(clock),
    )
    controller.plans.clear()
    cluster.watch(
        lambda kind, change, found: queue.add_all(
            cache.observe_change(kind, change, found, clock())
        )
    )
    cluster.apply_job(a_manifest("broken"))
    await controller.prime()
    working = asyncio.create_task(controller.work())
    began = clock()
    while clock() < began + seconds:
        queue.add(BROKEN)
        await asyncio.sleep(news_each_seconds)
    cluster.apply_job(a_manifest("sound"))
    await asyncio.sleep(1)
    assert len(cluster.pods()) == 3
    assert 15 < controller.plans[BROKEN] <= most
    assert not working.done()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    told = [record for record in caplog.records if record.message == "cannot reconcile"]
    assert told
    assert {record.__dict__["job"] for record in told} == {str(BROKEN)}
