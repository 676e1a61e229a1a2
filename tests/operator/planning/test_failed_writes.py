from typing import Any

import pytest
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.planning.failed_writes import (
    DRY_RUN,
    MAX_BACKOFF_SECONDS,
    REFUSED_SECONDS,
    Answers,
    FailedWrite,
    describe,
    note_failure,
    wants_dry_run,
)

from tests.operator.builders import NOW, a_job, a_pod, a_round, a_target, observed
from tests.situations import situations


def fail(times: int, judgement: Judgement, **options: float) -> FailedWrite:
    before = None
    for _ in range(times):
        before = note_failure(before, judgement, "no", NOW, **options)
    assert before is not None
    return before


@pytest.mark.parametrize(
    ("failed", "seconds", "lasting"),
    [
        (fail(1, Judgement.TROUBLE), 0.2, False),
        (fail(2, Judgement.TROUBLE), 0.4, False),
        (fail(3, Judgement.TROUBLE), 0.8, True),
        (fail(1000, Judgement.TROUBLE), MAX_BACKOFF_SECONDS, True),
        (fail(1, Judgement.TROUBLE, retry_after_seconds=7.0), 7.0, False),
        (fail(1, Judgement.REFUSED), REFUSED_SECONDS, True),
        (fail(9, Judgement.REFUSED), REFUSED_SECONDS, True),
        (fail(1, Judgement.REFUSED, refused_seconds=60.0), 60.0, True),
        (fail(1, Judgement.MALFORMED), REFUSED_SECONDS, True),
    ],
)
def test_next_try_and_whether_its_user_is_to_know(
    failed: FailedWrite, seconds: float, lasting: bool
) -> None:
    assert failed.retry_at == pytest.approx(NOW + seconds)
    assert failed.lasting is lasting


def test_what_fails_is_told_by_one_event_however_often_it_is_tried() -> None:
    quota = note_failure(None, Judgement.REFUSED, "exceeded quota", NOW)
    passing = note_failure(None, Judgement.TROUBLE, "conflict", NOW)
    failed = {"pods": quota, "service": quota, "status": passing}
    assert describe(failed) == "exceeded quota"
    assert Answers(failed).unreported == ("exceeded quota",)
    failed = Answers(failed).reported().failed
    assert Answers(failed).unreported == ()
    failed = {
        "pods": note_failure(failed["pods"], Judgement.REFUSED, "exceeded quota: used 4", NOW),
        "delete x": quota,
    }
    assert describe(failed) == "exceeded quota: used 4; exceeded quota"
    assert Answers(failed).unreported == ("exceeded quota",), "another write, another event"


def test_refused_deletions_of_many_pods_do_not_fill_the_status_nor_make_many_events() -> None:
    failed = {
        f"delete {n}": note_failure(None, Judgement.REFUSED, f"pod {n} is kept", NOW)
        for n in range(1000)
    }
    assert describe(failed) == "pod 0 is kept; pod 1 is kept; pod 2 is kept; and 997 more"
    assert len(Answers(failed).unreported) == 3
    assert Answers(failed).reported().unreported == ()


def suspended(reason: str) -> dict[str, Any]:
    return {
        "observedGeneration": 1,
        "conditions": [{"type": "Suspended", "status": "True", "reason": reason}],
    }


@situations(
    "status, seen, asked_generation, expected",
    {
        "a new job": ({}, observed(), 0, True),
        "asked already": ({}, observed(), 1, False),
        "changed since": ({"observedGeneration": 7}, observed(), 7, True),
        "the leader before has asked": (suspended("JobSuspended"), observed(), 0, False),
        "what the leader before was refused": (
            suspended("RefusedByApiServer"),
            observed(),
            0,
            True,
        ),
        "refused, and lifted since": (suspended("RefusedByApiServer"), observed(), 1, False),
        "has trained": ({"round": 3}, observed(), 0, False),
        "has pods": ({}, observed([a_pod(0)]), 0, False),
        "has a round": ({}, observed(round=a_round(0)), 0, False),
    },
)
def test_whether_to_ask(
    status: dict[str, Any], seen: Any, asked_generation: int, expected: bool
) -> None:
    assert (
        wants_dry_run(
            a_job(status=status),
            a_target(a_job()),
            seen,
            Answers(tried_generation=asked_generation),
        )
        is expected
    )


def test_asks_until_there_is_an_answer_although_the_status_is_written() -> None:
    job = a_job(status=suspended("JobSuspended"))
    assert wants_dry_run(
        job,
        a_target(job),
        observed(),
        Answers({DRY_RUN: FailedWrite("the API server fails: no leader", NOW)}),
    )
