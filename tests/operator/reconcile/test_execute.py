"""What the executor knows of the objects that it has written."""

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.actions import CreateService
from elastic_pytorch_operator.reconcile.execute import Executor
from elastic_pytorch_operator.spec.job import parse_job

from tests.operator.builders import a_manifest

PARTS = 10


async def test_services_are_looked_for_again_a_part_at_a_time_and_each_once() -> None:
    executor = Executor(FakeCluster(), Cache(), AgentSettings("http://operator"))
    jobs = [parse_job(a_manifest(f"job-{number}")) for number in range(200)]
    for job in jobs:
        (write,) = executor.writes(job, [CreateService()])
        await write.send()
    assert all(executor.has_service(job.uid) for job in jobs)
    forgotten = []
    for part in range(PARTS):
        executor.forget_unwatched(part, PARTS)
        forgotten.append(sum(not executor.has_service(job.uid) for job in jobs) - sum(forgotten))
    assert sum(forgotten) == 200
    assert max(forgotten) < 40, "not all at once"


async def test_what_is_known_of_jobs_that_are_gone_is_forgotten() -> None:
    executor = Executor(FakeCluster(), Cache(), AgentSettings("http://operator"))
    jobs = [parse_job(a_manifest(name)) for name in ("stays", "goes")]
    for job in jobs:
        (write,) = executor.writes(job, [CreateService()])
        await write.send()
    executor.forget_others({jobs[0].uid})
    assert [executor.has_service(job.uid) for job in jobs] == [True, False]
