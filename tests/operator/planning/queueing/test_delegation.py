from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.model.actions import CreateWorkload, DeleteWorkload, PatchWorkload, ResizeWorkload, WorkloadAction
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.queueing.delegation import NOTHING, STOP_SECONDS, delegate
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import NOW, a_queued_job, a_workload, observed

READY = {"PodsReady": ("True", "Started")}
EVICTED = a_workload(state="evicted", evicted_since=NOW)


def a_delegated_job(**fields: Any) -> Job:
    """A job in the queue `team` that runs on another cluster."""
    return a_queued_job(2, 4, managedBy=kueue.MULTIKUEUE, **fields)


def actions(job: Job, *workloads: WorkloadView, now: float = NOW) -> tuple[WorkloadAction, ...]:
    there = replace(observed(), workloads=workloads, now=now)
    planned = plan(job, there, Memory())
    assert planned.actions == delegate(job, there).actions, "nothing but its Workload is written"
    return delegate(job, there).actions


def test_a_delegated_job_has_one_workload_for_its_minimum() -> None:
    assert actions(a_delegated_job()) == (CreateWorkload(0, 2),)
    assert actions(a_delegated_job(), a_workload(state="pending")) == ()
    assert actions(a_delegated_job(status={"readyReplicas": 4}), a_workload(conditions=READY)) == (), "extras are the other's"


def test_readiness_is_that_of_the_copy() -> None:
    (told,) = actions(a_delegated_job(status={"readyReplicas": 2}), a_workload())
    assert isinstance(told, PatchWorkload)
    assert told.status["conditions"][-1]["reason"] == "Started"


def test_quota_is_released_when_the_copy_has_no_pods_or_cannot_be_reached() -> None:
    still = a_delegated_job(status={"replicas": 2})
    assert actions(still, EVICTED) == ()
    assert delegate(still, replace(observed(), workloads=(EVICTED,))).recheck_at == NOW + STOP_SECONDS
    for job, now in ((a_delegated_job(status={"replicas": 0}), NOW), (a_delegated_job(), NOW), (still, NOW + STOP_SECONDS)):
        (released,) = actions(job, EVICTED, now=now)
        assert isinstance(released, PatchWorkload)
        assert released.status["admission"] is None


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        # Kueue deletes the copy of a Workload whose spec has changed.
        (a_workload(count=3, conditions=READY), ()),
        (a_workload(state="pending", count=3), (ResizeWorkload("lm-base", "7", 2),)),
        (a_workload(queue="another"), (DeleteWorkload("lm-base", "uid-lm-base", "it is no longer wanted"),)),
        (a_workload(conditions={"Finished": ("True", "Succeeded")}), ()),
        (a_workload(deleting=True), ()),
    ],
)
def test_a_changed_job_does_not_change_what_holds_quota(workload: WorkloadView, expected: tuple[WorkloadAction, ...]) -> None:
    assert actions(a_delegated_job(status={"readyReplicas": 4}), workload) == expected


def test_a_suspended_job_gives_its_workload_back() -> None:
    job = a_delegated_job(suspend=True)
    assert actions(job) == ()
    assert [type(action) for action in actions(job, a_workload())] == [DeleteWorkload]


def test_a_job_whose_label_is_taken_off_gives_its_workload_back() -> None:
    job = replace(a_delegated_job(), queue=None)
    assert actions(job, a_workload()) == (DeleteWorkload("lm-base", "uid-lm-base", "it is no longer wanted"),)
    assert actions(job) == (), "without a queue no cluster is chosen"


def test_others_are_left_alone() -> None:
    there = replace(observed(), workloads=())
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    for job in (
        a_delegated_job(status=ended),
        replace(a_delegated_job(), queue=None),
        replace(a_delegated_job(), managed_by="example.com/other"),
    ):
        assert delegate(job, there) == NOTHING
    assert delegate(a_delegated_job(), observed()) == NOTHING, "an operator that does not ask Kueue"
