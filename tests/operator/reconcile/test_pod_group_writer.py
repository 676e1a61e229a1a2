from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.gang_schedulers import KUBERNETES
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import pod_groups
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.manifests.pod_group import pod_group
from elastic_pytorch_operator.reconcile.existing_objects import BlockedError
from elastic_pytorch_operator.reconcile.pod_group_writer import PodGroupWriter
from elastic_pytorch_operator.spec.job import parse_job

from tests.operator.builders import a_manifest
from tests.operator.counted_cluster import CountedCluster
from tests.operator.running_controller import Running
from tests.situations import situations

API_VERSION = "scheduling.x-k8s.io/v1alpha1"
NO_PERMISSION = (
    'podgroups.scheduling.x-k8s.io "lm" is forbidden: '
    'User "operator" cannot get resource "podgroups"'
)


def a_gang(**spec: Any) -> dict[str, Any]:
    return a_manifest(**{"minimum": 2, "scheduling": {"gangScheduler": "Coscheduling"}, **spec})


async def group_of(running: Running) -> Manifest | None:
    return next(iter(await running.cluster.list_all(pod_groups(API_VERSION), "default")), None)


async def begin(running: Running, **spec: Any) -> None:
    """Has a gang of three workers train."""
    running.cluster.apply_job(a_gang(**spec))
    await running.until_pods(3)
    running.start_pods()
    await running.until(lambda: running.round_size() == 3)


async def test_pod_group_is_there_before_the_first_pod(running: Running) -> None:
    running.cluster.apply_job(a_gang())
    await running.until_pods(3)
    calls = running.cluster.calls
    assert calls.count("create PodGroup") == 1
    assert calls.index("create PodGroup") < calls.index("create Pod")
    group = await group_of(running)
    assert group is not None
    assert group["spec"]["minMember"] == 2


@situations(
    "scheduler, api_version, spec",
    {
        "Coscheduling": ("Coscheduling", API_VERSION, {"minMember": 3}),
        "Kubernetes": (
            "Kubernetes",
            KUBERNETES.api_version,
            {"schedulingPolicy": {"gang": {"minCount": 3}}},
        ),
    },
)
async def test_pod_group_is_changed_with_the_minimum(
    running: Running, scheduler: str, api_version: str, spec: dict[str, Any]
) -> None:
    gang = {"scheduling": {"gangScheduler": scheduler}}
    await begin(running, **gang)
    running.cluster.fail_next("replace PodGroup", 500)
    running.cluster.apply_job(a_gang(minimum=3, **gang))
    await running.until(lambda: running.cluster.calls.count("replace PodGroup") == 2)
    group = await running.cluster.get(pod_groups(api_version), "default", "lm")
    assert group is not None
    assert group["spec"].items() >= spec.items()


async def test_pod_group_that_goes_before_it_is_changed_is_no_lack_of_a_scheduler(
    running: Running,
) -> None:
    await begin(running)
    running.cluster.fail_next("replace PodGroup", 404, 'podgroups "lm" not found')
    running.cluster.apply_job(a_gang(minimum=3))
    await running.until(lambda: running.cluster.calls.count("replace PodGroup") == 2, 20)
    assert running.events(names.REFUSED) == []


async def test_replacement_does_not_wait_for_a_pod_group_that_cannot_be_changed(
    running: Running,
) -> None:
    await begin(running)
    for _ in range(100):
        running.cluster.fail_next("replace PodGroup", 403, "denied by a webhook")
    running.cluster.apply_job(a_gang(minimum=3))
    running.lose_pod()
    await running.until(
        lambda: (
            len(running.indices()) == 3
            and "denied by a webhook" in running.condition(names.RUNNING)
        )
    )
    group = await group_of(running)
    assert group is not None
    assert group["spec"]["minMember"] == 2


async def test_pod_group_goes_when_the_job_is_suspended_and_comes_back_when_it_is_resumed(
    running: Running,
) -> None:
    running.cluster.apply_job(a_gang())
    await running.until_pods(3)
    running.cluster.apply_job(a_gang(suspend=True))
    await running.until(lambda: "delete Pod" in running.cluster.calls)
    for pod in running.cluster.pods():
        running.cluster.finish_deletion("default", pod["metadata"]["name"])
    await running.until(lambda: "delete PodGroup" in running.cluster.calls)
    assert await group_of(running) is None
    running.cluster.apply_job(a_gang())
    await running.until_pods(3)
    assert await group_of(running) is not None


@pytest.mark.parametrize(
    ("verb", "code", "message", "advice"),
    [
        (
            "create PodGroup",
            404,
            "404 page not found",
            f"the cluster has no PodGroup of {API_VERSION}: install that scheduler",
        ),
        (
            "get PodGroup",
            403,
            NO_PERMISSION,
            "add Coscheduling to gangSchedulers in the chart's values",
        ),
    ],
)
async def test_job_whose_pod_group_cannot_be_made_starts_no_pod_and_says_why(
    running: Running, verb: str, code: int, message: str, advice: str
) -> None:
    for _ in range(100):
        running.cluster.fail_next(verb, code, message)
    running.cluster.apply_job(a_gang())
    await running.until(lambda: advice in running.condition(names.RUNNING))
    assert "spec.scheduling.gangScheduler is Coscheduling, but" in running.condition(names.RUNNING)
    assert not running.cluster.pods()
    await running.until(lambda: bool(running.events(names.REFUSED)))
    running.cluster.apply_job(a_gang(scheduling={}))
    await running.until_pods(3)


async def test_job_is_told_how_kubernetes_itself_schedules_gangs(running: Running) -> None:
    for _ in range(100):
        running.cluster.fail_next(
            "create PodGroup", 404, "the server could not find the requested resource"
        )
    running.cluster.apply_job(a_gang(scheduling={"gangScheduler": "Kubernetes"}))
    missing = (
        f"the cluster has no PodGroup of {KUBERNETES.api_version}: "
        "enable that API and the feature gate GenericWorkload"
    )
    await running.until(lambda: missing in running.condition(names.RUNNING))
    assert not running.cluster.pods()
    await running.until(lambda: bool(running.events(names.REFUSED)))


async def test_pod_group_that_is_being_deleted_is_not_used_again_unless_a_pod_keeps_it() -> None:
    cluster = CountedCluster()
    writer = PodGroupWriter(cluster)
    job = parse_job(a_gang(scheduling={"gangScheduler": "Kubernetes"}))
    going = pod_group(job, KUBERNETES)
    going["metadata"]["deletionTimestamp"] = "2000-01-01T00:00:00Z"
    await cluster.create(pod_groups(KUBERNETES.api_version), going)
    with pytest.raises(BlockedError, match="PodGroup lm is still being deleted") as refused:
        await writer.put(job, without_pods=True)
    assert refused.value.judgement is Judgement.TROUBLE
    assert refused.value.words == "the API server refuses: PodGroup lm is still being deleted"
    assert writer.minimum(job) is None
    await writer.put(job)
    assert writer.minimum(job) == 2


async def test_suspended_job_says_that_its_pod_group_cannot_be_made(running: Running) -> None:
    for _ in range(100):
        running.cluster.fail_next("try PodGroup", 404, "404 page not found")
    running.cluster.apply_job(a_gang(suspend=True))
    await running.until(lambda: "install that scheduler" in running.condition(names.SUSPENDED))


async def test_pod_group_of_another_is_left_alone(running: Running) -> None:
    theirs = {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": "lm", "namespace": "default"},
        "spec": {},
    }
    await running.cluster.create(pod_groups(API_VERSION), theirs)
    running.cluster.apply_job(a_gang())
    await running.until(
        lambda: (
            "PodGroup lm exists and is not owned by this job" in running.condition(names.RUNNING)
        )
    )
    assert not running.cluster.pods()
    running.cluster.apply_job(a_gang(suspend=True))
    await running.until(lambda: "JobSuspended" in running.condition(names.RUNNING))
    group = await group_of(running)
    assert group is not None
    assert group["spec"] == {}


async def test_job_that_is_resumed_with_another_scheduler_gets_that_ones_pod_group() -> None:
    cluster = CountedCluster()
    writer = PodGroupWriter(cluster)
    before, after = (
        parse_job(a_gang(scheduling={"gangScheduler": name}))
        for name in ("Kubernetes", "Coscheduling")
    )
    await writer.put(before)
    assert (writer.minimum(before), writer.minimum(after)) == (2, None)
    await writer.delete(before)
    assert (writer.minimum(before), writer.minimum(after)) == (0, None)


async def test_pod_groups_are_looked_for_again_and_what_is_not_there_is_not() -> None:
    writer = PodGroupWriter(CountedCluster())
    job, ended = (parse_job(a_gang(name=name)) for name in ("lm", "ended"))
    await writer.put(job)
    await writer.delete(ended)
    for each in (job, ended):
        writer.forget(each.uid)
    assert (writer.minimum(job), writer.minimum(ended)) == (None, 0)
    writer.forget_others({job.uid})
    assert writer.minimum(ended) is None
