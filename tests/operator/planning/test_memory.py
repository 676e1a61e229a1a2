from typing import Any

from elastic_pytorch_operator.planning.failures.budget import backoff_seconds
from elastic_pytorch_operator.planning.memory import recall

from tests.operator.builders import NOW, TIME, a_job
from tests.situations import situations

BACKING_OFF = {"type": "Running", "status": "False", "reason": "BackingOff"}
TRAINS = {"type": "Running", "status": "True", "reason": "RoundRunning"}
CAUSE = {"worker": "w1", "exitCode": 1, "message": "ValueError: boom"}


@situations(
    "status, known",
    {
        "a new job": ({}, {}),
        "failures since the job began": (
            {"failures": 2, "totalFailures": 5},
            {"failures": 2, "total": 5, "in_a_row": 2},
        ),
        "how far the training is": ({"progress": {"step": 40, "checkpointStep": 30}}, {"step": 40}),
        "how often all workers have been replaced": ({"groupRestarts": 3}, {"group_restarts": 3}),
        "a group that trains": (
            {
                "round": 7,
                "failures": 3,
                "totalFailures": 3,
                "conditions": [TRAINS],
                "rootCause": CAUSE,
            },
            {"failures": 3, "total": 3, "in_a_row": 3},
        ),
        "a pause after three failures": (
            {"round": 7, "failures": 3, "totalFailures": 3, "conditions": [BACKING_OFF]},
            {
                "failures": 3,
                "total": 3,
                "in_a_row": 3,
                "counted_round": 7,
                "backoff_until": NOW + backoff_seconds(3),
            },
        ),
        "a pause after failures that a rule does not count": (
            {"round": 7, "conditions": [BACKING_OFF]},
            {"in_a_row": 2, "counted_round": 7, "backoff_until": NOW + backoff_seconds(2)},
        ),
    },
)
def test_budget(status: dict[str, Any], known: dict[str, Any]) -> None:
    budget = recall(a_job(status=status), NOW, TIME).budget
    fields = (
        "failures",
        "total",
        "in_a_row",
        "counted_round",
        "step",
        "backoff_until",
        "group_restarts",
    )
    assert {name: getattr(budget, name) for name in fields} == dict.fromkeys(fields, 0) | known


def test_cause_of_a_pause() -> None:
    last = recall(
        a_job(status={"conditions": [BACKING_OFF], "rootCause": CAUSE}), NOW, TIME
    ).budget.last
    assert last is not None
    assert str(last) == "w1 failed, exit code 1: ValueError: boom"
    assert (
        recall(a_job(status={"conditions": [TRAINS], "rootCause": CAUSE}), NOW, TIME).budget.last
        is None
    )


def test_rounds_of_stock_torchrun_are_not_counted() -> None:
    job = a_job(rendezvous={"backend": "c10d"}, status={"round": 7, "conditions": [BACKING_OFF]})
    assert recall(job, NOW, TIME).budget.counted_round == 0


@situations(
    "status, step",
    {
        "a group trained": ({"worldSize": 2, "progress": {"step": 40}}, 40),
        "none did": ({"worldSize": 0, "progress": {"step": 40}}, None),
        "it reports no steps": ({"worldSize": 2}, None),
    },
)
def test_step_of_a_group_that_another_leader_has_seen(
    status: dict[str, Any], step: int | None
) -> None:
    assert recall(a_job(status=status), NOW, TIME).interruptions.unled_step == step


@situations(
    "told, since",
    {
        "before this operator": ("2025-12-31T23:59:20Z", NOW - 40),
        "by a clock that is ahead": ("2026-01-01T01:00:00Z", NOW),
        "no time": ("no time", NOW),
        "never": (None, None),
    },
)
def test_moments_of_the_past(told: str | None, since: float | None) -> None:
    job = a_job(
        status={"startTime": told, "operatorState": {"lastGrowthTime": told}} if told else {}
    )
    known = recall(job, NOW, TIME)
    assert (known.active_since, known.grown_at, known.ended_at) == (since, since, None)
