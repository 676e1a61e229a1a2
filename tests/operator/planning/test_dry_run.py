"""When the API server is asked about a job's pods before one is made."""

from typing import Any

import pytest
from elastic_pytorch_operator.planning.failed_writes import DRY_RUN, Answers, FailedWrite, wants_dry_run

from tests.operator.builders import NOW, a_job, a_pod, a_round, a_target, observed


def suspended(reason: str) -> dict[str, Any]:
    return {"observedGeneration": 1, "conditions": [{"type": "Suspended", "status": "True", "reason": reason}]}


@pytest.mark.parametrize(
    ("status", "seen", "asked_generation", "expected"),
    [
        ({}, observed(), 0, True),
        ({}, observed(), 1, False),
        ({"observedGeneration": 7}, observed(), 7, True),
        (suspended("JobSuspended"), observed(), 0, False),
        (suspended("RefusedByApiServer"), observed(), 0, True),
        (suspended("RefusedByApiServer"), observed(), 1, False),
        ({"round": 3}, observed(), 0, False),
        ({}, observed([a_pod(0)]), 0, False),
        ({}, observed(round=a_round(0)), 0, False),
    ],
    ids=[
        "a new job",
        "asked already",
        "changed since",
        "the leader before has asked",
        "what the leader before was refused",
        "refused, and lifted since",
        "has trained",
        "has pods",
        "has a round",
    ],
)
def test_whether_to_ask(status: dict[str, Any], seen: Any, asked_generation: int, expected: bool) -> None:
    assert wants_dry_run(a_job(status=status), a_target(a_job()), seen, Answers(tried_generation=asked_generation)) is expected


def test_asks_until_there_is_an_answer_although_the_status_is_written() -> None:
    job = a_job(status=suspended("JobSuspended"))
    assert wants_dry_run(
        job, a_target(job), observed(), Answers({DRY_RUN: FailedWrite("the API server fails: no leader", NOW)})
    )
