import pytest
from elastic_pytorch_operator.planning.queueing.workload_conditions import (
    release,
    report_readiness,
    set_condition,
)

from tests.operator.builders import TIME, a_workload

LATER = "2026-01-02T00:00:00Z"
START, RECOVERY = ("False", "WaitForStart"), ("False", "WaitForRecovery")
STARTED, RECOVERED = ("True", "Started"), ("True", "Recovered")


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Preempted", "True"),
        ("NodeFailures", "True"),
        ("PodsReadyTimeout", "False"),
        ("Deactivated", "False"),
    ],
)
def test_release_keeps_what_kueue_has_set_and_names_the_reason_of_the_eviction(
    reason: str, requeued: str
) -> None:
    evicted = a_workload(
        state="evicted",
        conditions={
            "Evicted": ("True", reason),
            "Preempted": ("True", "InClusterQueue"),
            "PodsReady": ("True", "Started"),
        },
    )
    patch = release(evicted, LATER)
    assert (patch.version, patch.status["admission"]) == ("7", None)
    left = {
        c["type"]: (c["status"], c["reason"], c["lastTransitionTime"])
        for c in patch.status["conditions"]
    }
    assert left == {
        "QuotaReserved": ("False", "Pending", LATER),
        "Admitted": ("False", "NoReservation", LATER),
        "Evicted": ("True", reason, TIME),
        "Preempted": ("True", "InClusterQueue", TIME),
        "PodsReady": ("False", "WaitForStart", LATER),
        "Requeued": (requeued, reason, LATER),
    }


def test_condition_that_keeps_its_status_keeps_its_time() -> None:
    patch = set_condition(a_workload(), "Admitted", True, "Admitted", "again", LATER)
    assert [c["lastTransitionTime"] for c in patch.status["conditions"]] == [TIME, TIME]


@pytest.mark.parametrize(
    ("before", "ready", "after"),
    [
        ((None, None), 0, (START, START)),
        ((START, START), 1, (None, None)),
        ((START, START), 2, (STARTED, None)),
        ((START, START), 3, (STARTED, STARTED)),
        ((STARTED, STARTED), 3, (None, None)),
        ((STARTED, STARTED), 2, (None, RECOVERY)),  # the loss falls on the extra
        ((STARTED, RECOVERY), 1, (RECOVERY, None)),
        ((RECOVERY, RECOVERY), 3, (RECOVERED, RECOVERED)),
    ],
)
def test_the_last_extra_is_the_first_that_is_not_ready(
    before: tuple[tuple[str, str] | None, ...],
    ready: int,
    after: tuple[tuple[str, str] | None, ...],
) -> None:
    workloads = [
        a_workload(number, conditions={"PodsReady": condition} if condition else {})
        for number, condition in enumerate(before)
    ]
    changed = {
        patch.name: patch.status["conditions"][-1]
        for patch in report_readiness(workloads, ready, TIME)
    }
    found = tuple(changed.get(workload.name) for workload in workloads)
    assert tuple((c["status"], c["reason"]) if c else None for c in found) == after


@pytest.mark.parametrize(
    ("ready", "running", "not_ready"),
    [
        (4, {"lm-base": 2, "lm-extra-1": 1, "lm-extra-2": 1}, []),
        (3, {"lm-base": 2, "lm-extra-2": 1}, ["lm-extra-1"]),
        (3, {"lm-base": 1, "lm-extra-1": 1, "lm-extra-2": 1}, []),  # extras make up for the minimum
        (1, {"lm-extra-1": 1}, ["lm-base", "lm-extra-2"]),
    ],
)
def test_extra_of_another_flavor_is_ready_by_its_own_pods(
    ready: int, running: dict[str, int], not_ready: list[str]
) -> None:
    workloads = [a_workload(number, conditions={"PodsReady": STARTED}) for number in range(3)]
    assert [patch.name for patch in report_readiness(workloads, ready, TIME, running)] == not_ready
