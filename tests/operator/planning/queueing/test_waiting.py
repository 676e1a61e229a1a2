import pytest
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.queueing.waiting import explain_base, explain_eviction, explain_extras

from tests.operator.builders import a_workload


@pytest.mark.parametrize(
    ("base", "text"),
    [
        (None, "waits for quota in queue team: it has no Workload yet"),
        (a_workload(state="unseen"), "waits for quota in queue team: Kueue has not looked at it yet"),
        (a_workload(state="pending"), "waits for quota in queue team: QuotaReserved said"),
        (a_workload(conditions={"Admitted": ("False", "UnsatisfiedChecks")}), "waits for quota in queue team: Admitted said"),
        (a_workload(state="evicted"), "is evicted from queue team: Evicted said"),
        (a_workload(queue="old"), "leaves queue old for queue team: its quota is given back when its pods are gone"),
        (
            a_workload(state="pending", active=False),
            "has no quota in queue team: Workload lm-base is deactivated (by its spec.active); set its spec.active to true",
        ),
    ],
)
def test_a_job_says_what_it_waits_for_in_kueues_words(base: WorkloadView | None, text: str) -> None:
    assert explain_base("team", base) == text


def test_message_of_the_first_extra_that_waits_is_told() -> None:
    extras = [a_workload(1, "evicted"), a_workload(2, "pending")]
    assert explain_extras("team", 2, extras) == "waits for quota in queue team for 2 more workers: QuotaReserved said"
    assert explain_extras("team", 1, []) == "waits for quota in queue team for 1 more worker: Kueue has not looked at it yet"


def test_no_eviction_needs_no_explanation() -> None:
    assert explain_eviction("team", []) == ""
