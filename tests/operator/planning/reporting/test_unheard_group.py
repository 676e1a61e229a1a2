from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
from elastic_pytorch_operator.planning.reporting.unheard_group import may_train
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness, assess_workers

from tests.operator.builders import NOW, a_job, a_pod, a_round, an_agent, observed

UNHEARD = Candidate("w0", 0, "10.0.0.1", Liveness.STARTING, unheard=True)
STARTING = Candidate("w0", 0, "10.0.0.1", Liveness.STARTING)
TRAINED = {"state": "Running", "worldSize": 2}
BOTH = frozenset({"w0", "w1"})


@pytest.mark.parametrize(
    ("state", "candidates", "size", "trains"),
    [
        ("Running", [UNHEARD], 0, True),
        ("Resizing", [UNHEARD, STARTING], 0, True),
        ("Running", [UNHEARD], 2, False),
        ("Running", [STARTING], 0, False),
        ("Pending", [UNHEARD], 0, False),
        ("Suspended", [UNHEARD], 0, False),
    ],
    ids=["all unheard", "and a newcomer", "others are heard", "only a newcomer", "it did not train", "it was suspended"],
)
def test_group_that_trained_may_train_still(state: str, candidates: list[Candidate], size: int, *, trains: bool) -> None:
    assert may_train({"state": state}, candidates, size) is trains


def status_of(seen: Observed, **job: Any) -> dict[str, Any]:
    return describe_job(a_job(status=TRAINED, **job), seen, assess_workers(seen), seen.round, Findings(budget=Budget()))


def test_status_keeps_what_was_last_known_of_it() -> None:
    seen = observed([a_pod(0), a_pod(1)], heard_before=BOTH, listening_since=NOW - 11, last_heard_at=NOW)
    status = status_of(seen)
    assert (status["state"], status["worldSize"], status["readyReplicas"]) == ("Running", 2, 0)
    assert [worker["state"] for worker in status["workers"]] == ["Silent", "Silent"]
    running = find_condition(status, "Running") or {}
    assert (running["status"], running["reason"]) == ("Unknown", "WorkersUnheard")
    assert running["message"].startswith("2 workers have not been heard since a replica of the operator began to lead")


def test_group_that_is_given_up_does_not_train() -> None:
    status = status_of(observed([a_pod(0), a_pod(1)], heard_before=BOTH, listening_since=NOW - 121, last_heard_at=NOW))
    assert (status["state"], status["worldSize"]) == ("Pending", 0)


def test_group_that_is_heard_is_known() -> None:
    seen = observed([a_pod(0), a_pod(1)], [an_agent("w0")], round=a_round(0, size=2), heard_before=BOTH, last_heard_at=NOW)
    assert (find_condition(status_of(seen), "Running") or {})["status"] == "True"


def test_job_that_is_suspended_meanwhile_does_not_train() -> None:
    seen = observed([a_pod(0)], heard_before=BOTH, listening_since=NOW - 11, last_heard_at=NOW)
    status = status_of(seen, suspend=True)
    assert (status["state"], status["worldSize"]) == ("Suspending", 0)
