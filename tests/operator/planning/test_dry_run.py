from typing import Any

from elastic_pytorch_operator.planning.failed_writes import DRY_RUN, Answers, FailedWrite, wants_dry_run

from tests.operator.builders import NOW, a_job, a_pod, a_round, a_target, observed
from tests.situations import situations


def suspended(reason: str) -> dict[str, Any]:
    return {"observedGeneration": 1, "conditions": [{"type": "Suspended", "status": "True", "reason": reason}]}


@situations(
    "status, seen, asked_generation, expected",
    {
        "a new job": ({}, observed(), 0, True),
        "asked already": ({}, observed(), 1, False),
        "changed since": ({"observedGeneration": 7}, observed(), 7, True),
        "the leader before has asked": (suspended("JobSuspended"), observed(), 0, False),
        "what the leader before was refused": (suspended("RefusedByApiServer"), observed(), 0, True),
        "refused, and lifted since": (suspended("RefusedByApiServer"), observed(), 1, False),
        "has trained": ({"round": 3}, observed(), 0, False),
        "has pods": ({}, observed([a_pod(0)]), 0, False),
        "has a round": ({}, observed(round=a_round(0)), 0, False),
    },
)
def test_whether_to_ask(status: dict[str, Any], seen: Any, asked_generation: int, expected: bool) -> None:
    assert wants_dry_run(a_job(status=status), a_target(a_job()), seen, Answers(tried_generation=asked_generation)) is expected


def test_asks_until_there_is_an_answer_although_the_status_is_written() -> None:
    job = a_job(status=suspended("JobSuspended"))
    assert wants_dry_run(
        job, a_target(job), observed(), Answers({DRY_RUN: FailedWrite("the API server fails: no leader", NOW)})
    )
