import asyncio
import itertools
from datetime import timedelta

import pytest
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.resources import SERVICES
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import WATCH_CHECK_SECONDS, Controller
from elastic_pytorch_operator.reconcile.execute import merge_patch

from tests.operator.builders import a_manifest
from tests.operator.counted_cluster import CountedCluster
from tests.operator.running_controller import BEGIN, CountedQueue, Running, RunningController

NO_IMAGE = 'Pod "lm" is invalid: spec.containers[0].image: Required value'
UNKNOWN_FIELD = (
    'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
    'unknown field "spec.containers[0].resource"'
)


def refusals(running: Running) -> list[str]:
    return running.events("RefusedByApiServer")


async def test_next_round_does_not_wait_for_the_writes_of_the_one_before(running: Running) -> None:
    running.cluster.apply_job(a_manifest(minimum=1))
    await running.until_pods(3)
    running.start_pods()
    await running.until(lambda: running.round_size() == 3)
    running.cluster.delay_next("patch ElasticPyTorchJob/status")
    running.cluster.delay_next("create Pod")
    for left in (2, 1):
        running.cluster.finish_deletion("default", running.members()[-1])
        await running.until(lambda left=left: running.round_size() == left)
    await running.until(lambda: running.cluster.held == 2)
    assert running.cluster.calls.count("create Pod") == 4, (
        "the first of two replacements is on its way, the second waits for it"
    )
    running.cluster.release()
    await running.until_pods(3)
    await asyncio.sleep(0.3)
    assert running.cluster.calls.count("create Pod") == 5


@pytest.mark.parametrize(("tick_seconds", "planned"), [(0.0, 20), (1.0, 1)])
async def test_quick_plans_share_a_turn_of_the_event_loop_and_slow_ones_do_not(
    tick_seconds: float, planned: int
) -> None:
    ticks = itertools.count(0.0, tick_seconds)
    cluster, queue = CountedCluster(), CountedQueue()
    settings = AgentSettings("http://operator")
    controller = Controller(cluster, Cache(), AgentRegistry(), queue, settings, lambda: next(ticks))
    for number in range(20):
        cluster.apply_job(a_manifest(f"job-{number}"))
    await controller.prime()
    working = asyncio.create_task(controller.work())
    await asyncio.sleep(0)  # one turn
    assert queue.taken.total() == planned
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_makes_a_service_and_pods_once(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: running.indices() == ["0", "1", "2"])
    running.cluster.apply_job(a_manifest())
    await asyncio.sleep(0.2)
    assert running.indices() == ["0", "1", "2"]
    assert running.cluster.calls.count("create Service") == 1


async def test_template_that_makes_no_pod_fails_the_job(running: Running) -> None:
    running.cluster.fail_next("create Pod", 422, NO_IMAGE)
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: "spec.containers[0].image" in running.condition("Failed"))
    assert running.indices() == []
    assert running.cluster.job("lm")["status"]["state"] == "Failed"


async def test_policy_that_denies_a_replacement_never_fails_the_job(running: Running) -> None:
    await running.begin()
    denied = (
        "pods \"lm\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied "
        "request: no team"
    )
    running.cluster.fail_next("create Pod", 422, denied, fields=[""])
    running.lose_pod()
    await running.until(lambda: "denied request: no team" in running.condition("Running"))
    await running.until(lambda: refusals(running) == [f"The API server refuses: {denied}"])
    assert running.condition("Failed").startswith("NotEnded")
    assert running.cluster.calls.count("create Pod") == 4


async def test_job_that_has_begun_is_not_failed_by_malformed_pods(running: Running) -> None:
    await running.begin()
    running.cluster.fail_next("create Pod", 422, NO_IMAGE)
    running.lose_pod()
    await running.until(lambda: "spec.containers[0].image" in running.condition("Running"))
    assert running.condition("Failed").startswith("NotEnded")


async def test_pods_are_created_strictly_until_the_job_has_begun(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until_pods(3)
    assert running.cluster.strict == [True, True, True]
    await running.begin()
    running.lose_pod()
    await running.until_pods(3)
    assert running.cluster.strict[3:] == [False], (
        "what it has begun with, an earlier operator may have taken without a word"
    )


async def test_suspended_job_whose_pods_are_malformed_fails_at_once(running: Running) -> None:
    running.cluster.fail_next("try Pod", 400, UNKNOWN_FIELD)
    running.cluster.apply_job(a_manifest(suspend=True))
    await running.until(lambda: "spec.containers[0].resource" in running.condition("Failed"))
    assert running.condition("Failed").startswith("InvalidTemplate")
    assert running.cluster.pods() == []


async def test_suspended_job_whose_pods_are_refused_says_so_and_is_asked_about_once(
    running: Running,
) -> None:
    running.cluster.fail_next("try Pod", 403, 'pods "lm" is forbidden: exceeded quota')
    running.cluster.apply_job(a_manifest(suspend=True))
    await running.until(lambda: "exceeded quota" in running.condition("Suspended"))
    told = "RefusedByApiServer: spec.suspend is true: nothing runs"
    assert running.condition("Suspended").startswith(told)
    running.cluster.apply_job(a_manifest("fits", suspend=True))
    await running.until(lambda: bool(running.cluster.job("fits")["status"]))
    await asyncio.sleep(0.3)
    assert running.cluster.calls.count("try Pod") == 2


async def test_worker_of_a_stock_job_is_tried_before_its_store_is_made(running: Running) -> None:
    running.cluster.fail_next("try Pod", 400, UNKNOWN_FIELD)
    running.cluster.apply_job(a_manifest(rendezvous={"backend": "c10d"}))
    await running.until(lambda: "spec.containers[0].resource" in running.condition("Failed"))
    assert "create Pod" not in running.cluster.calls


async def test_denied_deletion_stops_neither_the_others_nor_the_status(running: Running) -> None:
    running.cluster.apply_job(a_manifest(replicas=4))
    await running.until(lambda: running.cluster.job("lm")["status"].get("replicas") == 4)
    words = 'admission webhook "keep.example.com" denied the request: it is mine'
    running.cluster.fail_next("delete Pod", 403, words)
    running.cluster.scale_job("lm", 2)
    await running.until(lambda: words in running.condition("Running"))
    assert running.cluster.job("lm")["status"]["observedGeneration"] == 2
    assert running.cluster.calls.count("delete Pod") == 2
    await running.until(lambda: refusals(running) == [f"The API server refuses: {words}"])


@pytest.mark.parametrize("backend", ["operator", "etcd-v2"])
async def test_service_that_is_denied_is_told_and_holds_nothing_up(
    running: Running, backend: str
) -> None:
    words = 'services "lm" is forbidden: exceeded quota: services=1'
    for _ in range(20):
        running.cluster.fail_next("create Service", 403, words)
    endpoint = {"endpoint": "etcd:2379"} if backend == "etcd-v2" else {}
    running.cluster.apply_job(a_manifest(rendezvous={"backend": backend, **endpoint}))
    await running.until_pods(3)
    await running.until(lambda: words in running.condition("Running"))
    running.lose_pod()
    await running.until_pods(3)
    assert running.cluster.calls.count("create Service") == 1
    assert len(refusals(running)) == 1


@pytest.mark.parametrize("backend", ["operator", "c10d"])
async def test_strangers_service_of_the_jobs_name_is_told(running: Running, backend: str) -> None:
    service = {"metadata": {"name": "lm", "namespace": "default"}, "spec": {}}
    await running.cluster.create(SERVICES, service)
    running.cluster.apply_job(a_manifest(rendezvous={"backend": backend}))
    told = "Service lm exists and is not owned by this job"
    await running.until(lambda: told in running.condition("Running"))
    await running.until(lambda: len(refusals(running)) == 1)
    assert "delete that Service" in refusals(running)[0]


async def test_service_of_a_job_just_deleted_is_waited_for_without_a_word(running: Running) -> None:
    owner = {"kind": names.KIND, "name": "lm", "uid": "before"}
    await running.cluster.create(
        SERVICES, {"metadata": {"name": "lm", "namespace": "default", "ownerReferences": [owner]}}
    )
    running.cluster.apply_job(a_manifest())
    await running.until_pods(3)
    await running.until(lambda: bool(running.condition("Running")))
    await asyncio.sleep(0.3)
    assert "Service" not in running.condition("Running")


@pytest.mark.parametrize("field", ["stored", "pruned"])
async def test_status_that_is_stored_in_another_way_is_not_written_again_and_again(
    running: Running, field: str
) -> None:
    running.cluster.alters_status = field
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: bool(running.condition("Running")))
    await asyncio.sleep(0.5)
    assert running.cluster.calls.count("patch ElasticPyTorchJob/status") < 8


async def test_late_answer_does_not_bring_a_deleted_job_back(running: Running) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until_pods(3)
    await running.until(lambda: bool(running.condition("Running")))
    running.cluster.delay_next("patch ElasticPyTorchJob/status")
    running.cluster.scale_job("lm", 2)
    await running.until(lambda: running.cluster.held == 1)
    running.cluster.remove_job("lm")
    calls = len(running.cluster.calls)
    running.cluster.release()
    await asyncio.sleep(0.5)
    assert running.cache.keys == []
    assert len(running.cluster.calls) <= calls + 1


async def test_job_deleted_while_its_plan_is_carried_out_is_no_fault(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.cluster.apply_job(a_manifest("other"))
    await running.until(lambda: len(running.cluster.pods()) == 3)
    running.cluster.delay_next("create Service")
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: running.cluster.held == 1)
    running.cluster.remove_job("lm")
    running.cluster.remove_job("other")
    await asyncio.sleep(0.2)
    running.cluster.release()
    await asyncio.sleep(0.2)
    assert "cannot reconcile" not in caplog.text


async def test_status_write_that_finds_no_job_forgets_it(running: Running) -> None:
    gone = 'elasticpytorchjobs "lm" not found'
    running.cluster.fail_next("patch ElasticPyTorchJob/status", 404, gone)
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: running.cache.keys == [])
    await asyncio.sleep(0.3)
    assert running.cluster.calls.count("patch ElasticPyTorchJob/status") == 1


async def test_event_is_cut_at_what_the_api_takes_in_bytes(running: Running) -> None:
    running.cluster.fail_next("create Pod", 403, "verboten: " + "ü" * 600 + "\ud800")
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: len(refusals(running)) == 1)
    note = refusals(running)[0]
    assert 1020 < len(note.encode()) <= 1024
    assert note.endswith("ü")


async def test_ended_job_with_an_invalid_spec_is_cleaned_up(running: Running) -> None:
    running.cluster.apply_job(a_manifest(cleanPodPolicy="All", ttlSecondsAfterFinished=1))
    await running.until_pods(3)
    await running.until(lambda: bool(running.condition("Running")))
    now = write_time(BEGIN + timedelta(seconds=running.loop.time()))
    failed = [{"type": "Failed", "status": "True", "reason": "PodLost"}]
    await running.write_status({"completionTime": now, "conditions": failed})
    running.cluster.apply_job(
        a_manifest(minimum=9, cleanPodPolicy="All", ttlSecondsAfterFinished=1)
    )
    await running.until(
        lambda: all(pod["metadata"].get("deletionTimestamp") for pod in running.cluster.pods()), 20
    )
    await running.until(lambda: "delete ElasticPyTorchJob" in running.cluster.calls, 20)
    assert running.cluster.calls.count("delete ElasticPyTorchJob") == 1


async def test_job_that_cannot_be_read_says_so_once(running: Running) -> None:
    running.cluster.apply_job(a_manifest(minimum=9))
    told = "InvalidSpec: waits for a valid spec: spec.maxReplicas"
    await running.until(lambda: running.condition("Running").startswith(told))
    await asyncio.sleep(0.1)
    assert running.cluster.calls.count("patch ElasticPyTorchJob/status") == 1
    assert running.condition("Failed").startswith("NotEnded")


async def test_ended_jobs_and_jobs_of_others_stay_as_they_are_with_an_invalid_spec(
    running: Running,
) -> None:
    running.cluster.apply_job(a_manifest())
    await running.until(lambda: bool(running.condition("Running")))
    complete = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    await running.write_status(complete)
    running.cluster.apply_job(a_manifest(minimum=9))
    running.cluster.apply_job(a_manifest("kueues", minimum=9, managedBy="kueue"))
    await asyncio.sleep(0.2)
    assert running.cluster.job("lm")["status"]["conditions"] == complete["conditions"]
    assert running.cluster.job("kueues")["status"] == {}


async def test_pod_deleted_while_a_new_leader_lists_is_replaced_at_once() -> None:
    running = Running()
    cluster, controller = running.cluster, running.controller
    await controller.prime()
    cluster.apply_job(a_manifest())
    leading = asyncio.create_task(controller.work())
    await running.until_pods(3)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)

    cluster.delay_next("list Pod")
    listing = asyncio.create_task(controller.prime())
    await running.until(lambda: cluster.held == 1)
    running.lose_pod(1)
    cluster.release()
    await listing
    leading = asyncio.create_task(controller.work())
    await running.until(lambda: running.indices() == ["0", "1", "2"])
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


@pytest.mark.process
async def test_pod_deleted_before_the_watches_began_is_replaced_soon() -> None:
    before = Running()
    async with before.runs():
        before.cluster.apply_job(a_manifest())
        await before.until(lambda: len(before.indices()) == 3)
    running = RunningController(before.cluster)
    running.watching = before.watching = False
    async with running.runs():
        before.lose_pod(1)
        await running.begin_to_watch()
        await before.until(lambda: before.indices() == ["0", "1", "2"])
        listed = before.cluster.calls.count("list Pod")
        await asyncio.sleep(2 * WATCH_CHECK_SECONDS)
        assert before.cluster.calls.count("list Pod") == listed, "once is enough"


@pytest.mark.parametrize(
    "verb", ["create Service", "create Pod", "patch ElasticPyTorchJob/status", "create Event"]
)
async def test_failing_api_server_is_asked_again(running: Running, verb: str) -> None:
    for _ in range(2):
        running.cluster.fail_next(verb, 500)
    running.cluster.apply_job(a_manifest())
    await running.until_pods(3)
    await running.until(lambda: bool(running.condition("Running")))


def test_merge_patch_has_what_differs_and_removes_what_is_no_longer_there() -> None:
    old = {
        "progress": {"step": 1, "loss": "2"},
        "rootCause": {},
        "workers": [1],
        "conditions": [{}],
    }
    new = {"progress": {"step": 2}, "workers": [], "round": 1, "conditions": [{}]}
    progress = {"step": 2, "loss": None}
    patch = {"progress": progress, "rootCause": None, "workers": [], "round": 1}
    assert merge_patch(old, new) == patch


async def test_no_more_pods_are_created_for_a_job_that_another_one_has_replaced(
    running: Running,
) -> None:
    running.cluster.call_seconds["create Pod"] = 1.0
    running.cluster.apply_job(a_manifest(replicas=200, maximum=200))
    await running.until(lambda: len(running.cluster.strict) > 1)
    running.cluster.remove_job("lm")
    running.cluster.apply_job(a_manifest(replicas=1))
    asked = len(running.cluster.strict)
    await asyncio.sleep(30)
    assert len(running.cluster.strict) == asked + 1
