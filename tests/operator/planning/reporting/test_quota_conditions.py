from dataclasses import replace

import pytest
from elastic_pytorch_operator.model.actions import PatchStatus, RecordEvent
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.queueing.quota import find_quota
from elastic_pytorch_operator.planning.reporting.quota_conditions import (
    explain_eviction,
    explain_lack,
    held,
    reason_of,
)

from tests.operator.builders import a_pod, a_queued_job, a_workload, condition, observed


@pytest.mark.parametrize(
    ("workloads", "reason"),
    [
        (None, "KueueDisabled"),
        ((), "QuotaRequested"),
        ((a_workload(state="unseen"),), "QuotaRequested"),
        ((a_workload(state="pending"),), "WaitingForQuota"),
        ((a_workload(state="evicted"),), "Evicted"),
        ((a_workload(), a_workload(1, "pending")), "WaitingForQuota"),
        ((a_workload(queue="another"),), "LeavingQueue"),
        ((a_workload(state="evicted", queue="another"),), "LeavingQueue"),
    ],
)
def test_reason_says_where_the_wait_stands(
    workloads: tuple[WorkloadView, ...] | None, reason: str
) -> None:
    assert reason_of(find_quota(a_queued_job(), observed(workloads=workloads))) == reason


@pytest.mark.parametrize(
    ("workloads", "text"),
    [
        ((), "waits for quota in queue team: it has no Workload yet"),
        (
            (a_workload(state="unseen"),),
            "waits for quota in queue team: Kueue has not processed it yet",
        ),
        ((a_workload(state="pending"),), "waits for quota in queue team: QuotaReserved said"),
        (
            (a_workload(conditions={"Admitted": ("False", "UnsatisfiedChecks")}),),
            "waits for quota in queue team: Admitted said",
        ),
        ((a_workload(state="evicted"),), "is evicted from queue team: Evicted said"),
        (
            (a_workload(queue="old"),),
            "leaves queue old for queue team: it returns its quota when its pods are gone",
        ),
        (
            (a_workload(state="pending", active=False),),
            "has no quota in queue team: Workload lm-base is deactivated (by its spec.active); "
            "set its spec.active to true",
        ),
        (
            (a_workload(), a_workload(1, "evicted"), a_workload(2, "pending")),
            "waits for quota in queue team for 2 more workers: QuotaReserved said",
        ),
        (
            (a_workload(), a_workload(1)),
            "waits for quota in queue team for 1 more worker: Kueue has not processed it yet",
        ),
        ((a_workload(), a_workload(1), a_workload(2)), ""),
    ],
)
def test_a_job_says_what_it_waits_for_in_kueues_words(
    workloads: tuple[WorkloadView, ...], text: str
) -> None:
    assert explain_lack(find_quota(a_queued_job(), observed(workloads=workloads))) == text


def test_eviction_is_told_with_the_number_of_workers() -> None:
    workloads = (a_workload(), a_workload(1, "evicted"), a_workload(2, "evicted"))
    found = find_quota(a_queued_job(), observed(workloads=workloads))
    assert (
        explain_eviction(found)
        == "Kueue takes back the quota of 2 workers in queue team: Evicted said"
    )


def test_group_trains_on_until_it_has_saved() -> None:
    there = observed([a_pod(0), a_pod(1)], workloads=(a_workload(state="evicted"),))
    quota = find_quota(a_queued_job(), there)
    running, resizing, degraded = held(reason_of(quota), explain_lack(quota), there, 2, "", "")
    assert (running.true, running.reason) == (True, "RoundRunning")
    assert (
        running.message
        == "2 workers train until they have saved; is evicted from queue team: Evicted said; "
        "2 pods are left"
    )
    assert [(c.true, c.reason) for c in (resizing, degraded)] == [(False, "Evicted")] * 2


def test_job_without_its_label_says_that_it_leaves() -> None:
    job = replace(a_queued_job(), queue=None)
    there = observed([a_pod(0)], workloads=(a_workload(),))
    assert reason_of(find_quota(job, there)) == "LeavingQueue"
    told = [
        action for action in plan(job, there, Memory()).actions if isinstance(action, RecordEvent)
    ]
    assert [event.reason for event in told] == ["LeavingQueue"]
    assert told[0].note.startswith("The job leaves queue team: ")


def test_wait_is_told_once_and_its_end_too() -> None:
    job, told = a_queued_job(), []
    for state in ("unseen", "pending", "pending", "admitted", "admitted"):
        todo = plan(job, observed(workloads=(a_workload(state=state),)), Memory())
        told += [action.reason for action in todo.actions if isinstance(action, RecordEvent)]
        for action in todo.actions:
            if isinstance(action, PatchStatus):
                job = replace(job, status=action.status)
    assert told == ["WaitingForQuota", "QuotaGranted"]
    assert condition(job.status, "Running")["reason"] == "WaitingForWorkers"
