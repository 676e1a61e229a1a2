from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import (
    CreateWorkload,
    DeleteWorkload,
    PatchWorkload,
    ResizeWorkload,
    WorkloadAction,
)
from elastic_pytorch_operator.model.observed import NodeView, Observed, PodView
from elastic_pytorch_operator.model.workload import Admission, WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import find_quota
from elastic_pytorch_operator.planning.queueing.workloads import (
    MAX_PENDING_EXTRAS,
    finish_workloads,
    plan_workloads,
)
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import a_pod, a_queued_job, a_workload, an_extra, observed
from tests.situations import situations

READY = {"PodsReady": ("True", "Started")}
TIMEOUT = {"Evicted": ("True", "PodsReadyTimeout")}


def actions(
    job: Job, *workloads: WorkloadView, pods: int = 0, there: Sequence[PodView] = (), **facts: Any
) -> list[WorkloadAction]:
    seen = observed(there or [a_pod(index) for index in range(pods)], **facts, workloads=workloads)
    return plan_workloads(job, seen, find_quota(job, seen))


def told(job: Job, *workloads: WorkloadView, **facts: Any) -> str:
    """The actions in short."""
    found = []
    for action in actions(job, *workloads, **facts):
        match action:
            case CreateWorkload(number, count):
                found.append(f"create {number} of {count}")
            case DeleteWorkload(name):
                found.append(f"delete {name}")
            case ResizeWorkload(name, _, count):
                found.append(f"resize {name} to {count}")
            case PatchWorkload(name, _, spec, status):
                found.append(
                    f"patch {name} "
                    f"{'spec' if spec else 'release' if 'admission' in status else 'conditions'}"
                )
    return ", ".join(found)


BASE, EXTRA = a_workload(conditions=READY), a_workload(1, conditions=READY)
EVICTED, WAITS = a_workload(state="evicted"), a_workload(2, "pending")
LARGE = a_workload(count=3, conditions=READY)


def requeued(reason: str) -> WorkloadView:
    return a_workload(state="pending", conditions={"Requeued": ("False", reason)})


@pytest.mark.parametrize(
    ("workloads", "pods", "expected"),
    [
        ((), 0, "create 0 of 2"),
        ((), 2, ""),
        ((a_workload(state="pending"),), 0, ""),
        ((a_workload(state="pending", count=3),), 0, "resize lm-base to 2"),
        ((BASE,), 2, "create 1 of 1, create 2 of 1"),
        ((BASE, a_workload(1, "pending")), 2, "create 2 of 1"),
        ((BASE, EXTRA, WAITS), 3, ""),
        ((BASE, a_workload(1, "evicted"), a_workload(2, conditions=READY)), 4, ""),
        ((BASE, a_workload(1, "evicted"), a_workload(2, conditions=READY)), 3, "delete lm-extra-1"),
        ((BASE, a_workload(1, "evicted"), a_workload(2, "evicted")), 3, "delete lm-extra-2"),
        (
            (BASE, a_workload(1, "evicted", conditions=TIMEOUT), WAITS),
            2,
            "patch lm-extra-1 release",
        ),
        ((BASE, a_workload(1, "pending", conditions=TIMEOUT), WAITS), 2, ""),
        ((EVICTED, a_workload(1, "pending")), 2, "delete lm-extra-1"),
        ((EVICTED, a_workload(1)), 3, ""),
        ((EVICTED, a_workload(1)), 0, "delete lm-extra-1, patch lm-base release"),
        ((EVICTED,), 0, "patch lm-base release"),
        ((a_workload(queue="another"),), 2, ""),
        ((a_workload(queue="another"),), 0, "delete lm-base"),
        ((a_workload(conditions={"Finished": ("True", "OwnerNotFound")}),), 0, "delete lm-base"),
        ((LARGE,), 3, "create 1 of 1, create 2 of 1"),
        ((LARGE,), 2, "resize lm-base to 2, create 1 of 1, create 2 of 1"),
        ((LARGE, EXTRA), 4, "create 2 of 1"),
        ((LARGE, EXTRA, a_workload(2, conditions=READY)), 4, "resize lm-base to 2"),
        ((a_workload(count=4, conditions=READY), EXTRA, WAITS), 4, "resize lm-base to 3"),
        ((requeued("DeactivatedDueToAdmissionCheck"),), 0, "delete lm-base"),
        ((requeued("PodsReadyTimeout"),), 0, ""),
        ((BASE, a_workload(1, active=False), WAITS), 2, ""),
        (
            (BASE, a_workload(1, admission=Admission("c", 1, ("other",))), WAITS),
            2,
            "patch lm-extra-1 spec",
        ),
    ],
)
def test_workloads_follow_from_what_there_is(
    workloads: tuple[WorkloadView, ...], pods: int, expected: str
) -> None:
    assert told(a_queued_job(status={"readyReplicas": 4}), *workloads, pods=pods) == expected


def test_smaller_job_keeps_an_extra_with_quota_and_not_the_first_which_waits() -> None:
    job = a_queued_job(status={"readyReplicas": 4})
    has = a_workload(2, conditions=READY)
    waits = a_workload(1, "pending")
    assert told(replace(job, wanted=3), BASE, waits, has, pods=3) == "delete lm-extra-1"
    assert told(replace(job, wanted=3), BASE, has, pods=3) == ""
    assert told(job, BASE, has, pods=3) == "create 1 of 1"


def test_few_extras_wait_at_a_time() -> None:
    job = a_queued_job(2, 100, status={"readyReplicas": 2})
    asked = [f"create {number} of 1" for number in range(1, MAX_PENDING_EXTRAS + 1)]
    assert told(job, BASE, pods=2) == ", ".join(asked)
    waiting = [a_workload(number, "pending") for number in range(1, MAX_PENDING_EXTRAS)]
    assert told(job, BASE, *waiting, pods=2) == asked[-1]


def test_extra_for_a_spare_is_asked_for_last_and_is_ready_with_it() -> None:
    job, extra = a_queued_job(None, 2, spares=1), a_workload(1)
    assert CreateWorkload(1, 1, ("flavor",)) in actions(job, BASE, pods=2)
    for ready, status in ((0, "False"), (1, "True")):
        job = replace(job, status={"readyReplicas": 2, "readySpares": ready})
        planned = actions(job, BASE, extra, pods=3)
        patches = [a for a in planned if isinstance(a, PatchWorkload) and a.name == extra.name]
        (told,) = (a.status["conditions"] for a in patches if a.status is not None)
        assert [c["status"] for c in told if c["type"] == "PodsReady"] == [status]


def test_suspended_job_gives_all_back_as_its_pods_go() -> None:
    job = replace(a_queued_job(), wanted=0, suspend=True)
    assert told(job, a_workload(), a_workload(1), WAITS, pods=3) == "delete lm-extra-2"
    assert told(job, a_workload(), a_workload(1), pods=2) == "delete lm-extra-1"
    assert told(job, a_workload(), pods=0) == "delete lm-base"


UNQUEUED = replace(a_queued_job(), queue=None)


@pytest.mark.parametrize(
    ("workloads", "pods", "expected"),
    [
        ((a_workload(),), 2, ""),
        ((a_workload(), a_workload(1), WAITS), 3, "delete lm-extra-2"),
        ((a_workload(), a_workload(1)), 2, "delete lm-extra-1"),
        ((EVICTED, a_workload(1)), 3, ""),
        ((a_workload(), a_workload(1)), 0, "delete lm-extra-1, delete lm-base"),
        ((EVICTED,), 0, "delete lm-base"),
        ((a_workload(state="pending"),), 2, "delete lm-base"),
        ((a_workload(conditions={"Finished": ("True", "OwnerNotFound")}),), 2, "delete lm-base"),
        ((a_workload(deleting=True),), 2, ""),
        ((), 2, ""),
    ],
)
def test_job_whose_label_is_taken_off_gives_all_back_as_its_pods_go(
    workloads: tuple[WorkloadView, ...], pods: int, expected: str
) -> None:
    assert told(UNQUEUED, *workloads, pods=pods) == expected


def kinds(job: Job, there: Observed) -> list[type[WorkloadAction]]:
    planned = plan_workloads(job, there, find_quota(job, there))
    return [type(action) for action in planned]


def test_pod_on_a_lost_node_holds_up_no_release() -> None:
    stuck: PodView = a_pod(0, deleting=True)
    job, workloads = a_queued_job(), (EVICTED,)
    there = observed(
        [stuck], workloads=workloads, nodes={"node-0": NodeView("node-0", ready=False)}
    )
    assert kinds(job, there) == [PatchWorkload]


def test_quota_of_a_topology_is_given_back_when_its_own_pod_is_gone() -> None:
    pods = [
        a_pod(index, topology=True, workload=f"lm-{name}")
        for index, name in enumerate(("base", "base", "extra-1"))
    ]
    job = a_queued_job(status={"readyReplicas": 2})
    workloads = (BASE, a_workload(1, "evicted"), a_workload(2, "pending"))
    there = observed(pods, workloads=workloads)
    assert kinds(job, there) == []
    assert kinds(job, observed(pods[:2], workloads=workloads)) == [DeleteWorkload]


@pytest.mark.parametrize(("complete", "reason"), [(True, "Succeeded"), (False, "Failed")])
def test_ended_job_finishes_its_base_once_no_pod_is_left(complete: bool, reason: str) -> None:
    status = {"conditions": [{"type": "Complete" if complete else "Failed", "status": "True"}]}
    job = a_queued_job(status=status)
    there = observed([a_pod(0)], workloads=(a_workload(), a_workload(1)))
    assert finish_workloads(job, there) == []
    coming = observed(workloads=there.workloads, being_created={0: "lm-base"})
    assert finish_workloads(job, coming) == []
    patch, delete = finish_workloads(job, observed(workloads=there.workloads))
    assert isinstance(patch, PatchWorkload)
    assert patch.status["conditions"][-1]["reason"] == reason
    assert delete == DeleteWorkload("lm-extra-1", "uid-lm-extra-1", "the job has ended")
    done = a_workload(conditions={"Finished": ("True", reason)})
    assert finish_workloads(job, observed(workloads=(done,))) == []


SPOT = a_queued_job(
    status={"readyReplicas": 4}, scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spot"}}}
)
OLDER = a_queued_job(scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spots"}}})
EXTRAS = (an_extra(SPOT, 1, conditions=READY), an_extra(SPOT, 2, conditions=READY))


@situations(
    "job, workloads, pods, expected",
    {
        "as without other flavors": (SPOT, (BASE,), "bb", "create 1 of 1, create 2 of 1"),
        "a flavor of their own": (SPOT, (BASE, *EXTRAS), "bb12", ""),
        "its own pod is there": (SPOT, (BASE, an_extra(SPOT, 1, "evicted"), EXTRAS[1]), "bb12", ""),
        "and the base's does not count": (
            SPOT,
            (BASE, an_extra(SPOT, 1, "evicted"), EXTRAS[1]),
            "b12",
            "",
        ),
        "its own is gone": (
            SPOT,
            (BASE, an_extra(SPOT, 1, "evicted"), EXTRAS[1]),
            "bb2",
            "delete lm-extra-1",
        ),
        "of an older spec, as long as its pod is there": (
            SPOT,
            (BASE, an_extra(OLDER, 1), EXTRAS[1]),
            "bb12",
            "",
        ),
        "of an older spec": (
            SPOT,
            (BASE, an_extra(OLDER, 1), EXTRAS[1]),
            "bb2",
            "delete lm-extra-1",
        ),
        "and pending": (
            SPOT,
            (BASE, an_extra(OLDER, 1, "pending"), EXTRAS[1]),
            "bb2",
            "delete lm-extra-1",
        ),
        "of a spec without": (SPOT, (BASE, a_workload(1), EXTRAS[1]), "bb2", "delete lm-extra-1"),
        "taken out of the spec": (
            replace(SPOT, scheduling=a_queued_job().scheduling),
            (BASE, *EXTRAS),
            "bb",
            "delete lm-extra-2, delete lm-extra-1",
        ),
        "a lowered minimum": (SPOT, (a_workload(count=3, conditions=READY), EXTRAS[0]), "bbb1", ""),
        "as the whole job leaves": (SPOT, (EVICTED, *EXTRAS), "12", ""),
        "extra by extra": (SPOT, (EVICTED, *EXTRAS), "2", "delete lm-extra-1"),
    },
)
def test_extras_of_other_flavors_come_and_go_with_their_own_pods(
    job: Job, workloads: tuple[WorkloadView, ...], pods: str, expected: str
) -> None:
    names = {"b": "lm-base", "1": "lm-extra-1", "2": "lm-extra-2"}
    there = [a_pod(index, workload=names[key]) for index, key in enumerate(pods)]
    assert told(job, *workloads, there=there) == expected


def test_extras_of_other_flavors_are_asked_for_without_those_of_the_base() -> None:
    assert actions(replace(SPOT, wanted=3), BASE, pods=2)[0] == CreateWorkload(1, 1)
    pinned = a_queued_job(2, 3, status={"readyReplicas": 2}, scheduling={"extraWorkers": {}})
    assert actions(pinned, BASE, pods=2) == [CreateWorkload(1, 1, ("flavor",))]


def test_extra_whose_pod_kueue_has_placed_is_ready_by_that_pod() -> None:
    """By their count the last is not ready, and `waitForPodsReady` would take workers."""
    quota = Admission("shared", 1, ("flavor",), topology=True)
    workloads = (
        BASE,
        *(a_workload(number, admission=quota, conditions=READY) for number in (1, 2)),
    )
    there = [
        a_pod(index, workload=name, topology=True)
        for index, name in enumerate(("lm-base", "lm-base", "lm-extra-2"))
    ]
    job = a_queued_job(status={"readyReplicas": 3})
    planned = actions(job, *workloads, there=there)
    assert [a.name for a in planned if isinstance(a, PatchWorkload)] == ["lm-extra-1"]


def test_extra_whose_pod_is_on_its_way_is_not_given_back_before_it() -> None:
    facts = {"there": [a_pod(index, workload="lm-base") for index in range(2)]}
    older = (BASE, an_extra(OLDER, 1), EXTRAS[1])
    assert "delete lm-extra-1" in told(SPOT, *older, **facts)
    assert "delete lm-extra-1" not in told(SPOT, *older, being_created={2: "lm-extra-1"}, **facts)


def test_extra_of_a_flavor_that_is_no_longer_chosen_waits_for_its_own_pod() -> None:
    job = replace(SPOT, scheduling=a_queued_job().scheduling)
    workloads = (BASE, a_workload(1), an_extra(SPOT, 2))
    there = [a_pod(index, workload="lm-base") for index in range(2)]
    there.append(a_pod(2, workload="lm-extra-2", deleting=True))
    assert "delete lm-extra-2" not in told(job, *workloads, there=there)
    assert "delete lm-extra-2" in told(job, *workloads, there=there[:2])
