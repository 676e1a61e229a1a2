import pytest
from elastic_pytorch_operator.planning.queueing.conditions import release, set_condition

from tests.operator.builders import TIME, a_workload

LATER = "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [("Preempted", "True"), ("NodeFailures", "True"), ("PodsReadyTimeout", "False"), ("Deactivated", "False")],
)
def test_release_keeps_what_kueue_has_set_and_names_the_reason_of_the_eviction(reason: str, requeued: str) -> None:
    evicted = a_workload(
        state="evicted",
        conditions={"Evicted": ("True", reason), "Preempted": ("True", "InClusterQueue"), "PodsReady": ("True", "Started")},
    )
    patch = release(evicted, LATER)
    assert (patch.version, patch.status["admission"]) == ("7", None)
    left = {c["type"]: (c["status"], c["reason"], c["lastTransitionTime"]) for c in patch.status["conditions"]}
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
