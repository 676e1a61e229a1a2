"""When the API server is asked about a job's pods before one is made."""

from typing import Any

import pytest
from elastic_pytorch_operator.dry_run import wants_dry_run
from elastic_pytorch_operator.failed_writes import DRY_RUN, FailedWrite
from operator_builders import NOW, a_job, a_pod, a_round, observed


FAILED = {"failed": True}


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
        ({"observedGeneration": 1, **FAILED}, observed(), 0, True),
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
        "the status was written, the answer is yet to come",
        "has trained",
        "has pods",
        "has a round",
    ],
)
def test_whether_to_ask(status: dict[str, Any], seen: Any, asked_generation: int, expected: bool) -> None:
    failed = {DRY_RUN: FailedWrite("no", NOW)} if status.get("failed") else {}
    assert wants_dry_run(a_job(status=status), seen, asked_generation, failed) is expected
