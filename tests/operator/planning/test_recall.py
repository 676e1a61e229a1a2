"""What a new leader remembers of a job: its status, put back into a budget."""

from typing import Any

import pytest
from elastic_pytorch_operator.planning.failures.budget import backoff_seconds
from elastic_pytorch_operator.planning.recall import recall

from tests.operator.builders import NOW, TIME, a_job

BACKING_OFF = {"type": "Running", "status": "False", "reason": "BackingOff"}
TRAINS = {"type": "Running", "status": "True", "reason": "RoundRunning"}
CAUSE = {"worker": "w1", "exitCode": 1, "message": "ValueError: boom"}


@pytest.mark.parametrize(
    ("status", "known"),
    [
        pytest.param({}, {}, id="a new job"),
        pytest.param(
            {"failures": 2, "totalFailures": 5}, {"failures": 2, "total": 5, "in_a_row": 2}, id="failures since the job began"
        ),
        pytest.param(
            {"progress": {"step": 40, "checkpointStep": 30}}, {"step": 40, "checkpoint_step": 30}, id="how far the training is"
        ),
        pytest.param({"groupRestarts": 3}, {"group_restarts": 3}, id="how often all workers have been replaced"),
        pytest.param(
            {"round": 7, "failures": 3, "totalFailures": 3, "conditions": [TRAINS], "rootCause": CAUSE},
            {"failures": 3, "total": 3, "in_a_row": 3},
            id="a group that trains",
        ),
        pytest.param(
            {"round": 7, "failures": 3, "totalFailures": 3, "conditions": [BACKING_OFF]},
            {
                "failures": 3,
                "total": 3,
                "in_a_row": 3,
                "counted_round": 7,
                "backoff_until": NOW + backoff_seconds(3),
            },
            id="a pause after three failures",
        ),
        pytest.param(
            {"round": 7, "conditions": [BACKING_OFF]},
            {"in_a_row": 2, "counted_round": 7, "backoff_until": NOW + backoff_seconds(2)},
            id="a pause after failures that a rule does not count",
        ),
    ],
)
def test_budget(status: dict[str, Any], known: dict[str, Any]) -> None:
    budget = recall(a_job(status=status), NOW, TIME).budget
    fields = ("failures", "total", "in_a_row", "counted_round", "step", "checkpoint_step", "backoff_until", "group_restarts")
    assert {name: getattr(budget, name) for name in fields} == dict.fromkeys(fields, 0) | known


def test_cause_of_a_pause() -> None:
    last = recall(a_job(status={"conditions": [BACKING_OFF], "rootCause": CAUSE}), NOW, TIME).budget.last
    assert last is not None
    assert str(last) == "w1 failed, exit code 1: ValueError: boom"
    assert recall(a_job(status={"conditions": [TRAINS], "rootCause": CAUSE}), NOW, TIME).budget.last is None


def test_rounds_of_stock_torchrun_are_not_counted() -> None:
    job = a_job(rendezvous={"backend": "c10d"}, status={"round": 7, "conditions": [BACKING_OFF]})
    assert recall(job, NOW, TIME).budget.counted_round == 0


@pytest.mark.parametrize(
    ("status", "step"),
    [
        pytest.param({"worldSize": 2, "progress": {"step": 40}}, 40, id="a group trained"),
        pytest.param({"worldSize": 0, "progress": {"step": 40}}, None, id="none did"),
        pytest.param({"worldSize": 2}, None, id="it reports no steps"),
    ],
)
def test_step_of_a_group_that_another_leader_has_seen(status: dict[str, Any], step: int | None) -> None:
    assert recall(a_job(status=status), NOW, TIME).unled_step == step
