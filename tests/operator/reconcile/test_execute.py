import asyncio

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.actions import Action, CreatePod, CreateService, CreateStore
from elastic_pytorch_operator.reconcile.controller import RESYNC_PARTS, RESYNC_SECONDS
from elastic_pytorch_operator.reconcile.execute import Executor
from elastic_pytorch_operator.spec.job import parse_job

from tests.operator.builders import KEY, a_manifest
from tests.operator.counted_cluster import CountedCluster
from tests.operator.running_controller import CountedQueue, RunningController

JOBS = 60


async def test_services_are_looked_for_again_a_part_at_a_time_and_each_once() -> None:
    running = RunningController(CountedCluster(nodes=4, pods_per_node=100))
    for number in range(JOBS):
        running.cluster.apply_job(a_manifest(f"job-{number}"))
    looks = []
    async with running.runs():
        await asyncio.sleep(1.0)
        for _ in range(RESYNC_PARTS):
            before = running.cluster.calls.count("create Service")
            await asyncio.sleep(RESYNC_SECONDS / RESYNC_PARTS)
            looks.append(running.cluster.calls.count("create Service") - before)
    assert sum(looks) == JOBS
    assert max(looks) < JOBS / 5, "not all at once"


async def test_job_of_another_controller_is_planned_as_rarely_as_others() -> None:
    queue = CountedQueue()
    running = RunningController(CountedCluster(), queue)
    running.cluster.apply_job(a_manifest(managedBy="kueue.x-k8s.io/multikueue"))
    async with running.runs():
        await asyncio.sleep(RESYNC_SECONDS - 1.0)
    assert queue.taken[KEY] <= 3


@pytest.mark.parametrize(
    ("action", "explained"), [(CreateStore(1), True), (CreatePod(0, rendezvous=1), False)]
)
async def test_user_is_told_that_a_refused_pod_is_the_operators_own(
    action: Action, explained: bool
) -> None:
    cluster = CountedCluster()
    executor = Executor(cluster, Cache(), AgentSettings("http://operator"))
    job = parse_job(a_manifest(rendezvous={"backend": "c10d"}))
    cluster.fail_next(
        "create Pod", 403, "forbidden: minimum cpu usage per Container is 100m, but request is 50m"
    )
    (write,) = executor.writes(job, [action])
    with pytest.raises(ClusterError) as refused:
        await write.send()
    assert refused.value.words.startswith("the API server refuses: forbidden: minimum cpu usage")
    assert ("pod of the rendezvous' store" in refused.value.words) is explained


async def test_what_is_known_of_jobs_that_are_gone_is_forgotten() -> None:
    executor = Executor(CountedCluster(), Cache(), AgentSettings("http://operator"))
    jobs = [parse_job(a_manifest(name)) for name in ("stays", "goes")]
    for job in jobs:
        (write,) = executor.writes(job, [CreateService()])
        await write.send()
    executor.forget_others({jobs[0].uid})
    assert [executor.has_service(job.uid) for job in jobs] == [True, False]
