from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import Ending, FailureRecord
from elastic_pytorch_operator.model.observed import Observed, PodView, Progress
from elastic_pytorch_operator.planning.completion import (
    GIVE_UP_SECONDS,
    decide_ending,
    why_it_cannot_start,
)
from elastic_pytorch_operator.planning.failed_writes import Answers
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.workers.liveness import assess_workers, without_victims
from elastic_pytorch_operator.spec.failure_rules import parse_rules

from tests.operator.builders import (
    NOW,
    a_dead_pod,
    a_job,
    a_pending_pod,
    a_pod,
    a_round,
    a_target,
    an_agent,
    observed,
)
from tests.operator.spec.test_failure_rules import on_codes
from tests.situations import situations

BOOM = FailureRecord("w1", 1, 1, "", "ValueError: boom", NOW)


def end(
    seen: Observed,
    budget: Budget | None = None,
    job: dict[str, Any] | None = None,
    *,
    invalid: str | None = None,
    active_since: float | None = None,
    **departures: Any,
) -> Ending | None:
    candidates = without_victims(assess_workers(seen), departures.get("victims", ()), {})
    ended = a_job(**(job or {}))
    memory = Memory(
        budget=budget or Budget(),
        active_since=active_since,
        answers=Answers(invalid=invalid),
        **departures,
    )
    return decide_ending(ended, a_target(ended), seen, candidates, memory, NONE_FAILED)[0]


def group(*states: str) -> Observed:
    numbers = range(len(states))
    return observed(
        [a_pod(i) for i in numbers],
        [an_agent(f"w{i}", state) for i, state in enumerate(states)],
        round=a_round(*numbers),
    )


def ended(index: int, *, exit_code: int = 0, **fields: Any) -> PodView:
    return a_dead_pod(index, exit_code=exit_code, **fields)


def two(first: PodView, second: PodView, *states: str) -> Observed:
    """A round of two pods, whose agents have said these states."""
    agents = [an_agent(f"w{i}", state) for i, state in enumerate(states)]
    return observed([first, second], agents, round=a_round(0, 1))


def saving(seconds: float) -> Observed:
    """A group of which one worker has done, and the other waits for the last checkpoint."""
    saves = an_agent(
        "w0", saving_since=NOW - seconds, progress=Progress(failed_saves=2, save_error="no space")
    )
    return observed([a_pod(0), a_pod(1)], [saves, an_agent("w1", "succeeded")], round=a_round(0, 1))


@situations(
    "seen, complete",
    {
        "all have succeeded": (group("succeeded", "succeeded"), True),
        "one waits for the last checkpoint": (saving(5), False),
        "one has returned early": (group("succeeded", "running"), False),
        "no worker has": (group("running", "running"), False),
        "exit code 0 of all, which no agent has called success": (
            two(ended(0), ended(1), "running", "running"),
            False,
        ),
        "the agents have exited already": (two(ended(0), ended(1), "succeeded", "succeeded"), True),
        "stock torchruns have ended, which have no agents": (
            two(ended(0, rendezvous=1), ended(1, rendezvous=1)),
            True,
        ),
        "a late joiner is not asked": (
            observed(
                [a_pod(0), a_pod(1)],
                [an_agent("w0", "succeeded"), an_agent("w1", "ready", round_=0)],
                round=a_round(0),
            ),
            True,
        ),
        "the last one was lost before it could say so": (
            two(a_pod(0), ended(1, exit_code=137), "succeeded"),
            False,
        ),
        "exit 0 on SIGTERM is not success": (
            two(a_pod(0), ended(1, deleting=True), "succeeded"),
            False,
        ),
        "exit 0, and deleted later": (
            two(
                a_pod(0),
                ended(1, deleting=True, ended_before_deletion=True),
                "succeeded",
                "succeeded",
            ),
            True,
        ),
        "exit 0, and a sidecar runs": (
            two(a_pod(0, exit_code=0, sidecar_runs=True), a_pod(1), "succeeded", "succeeded"),
            True,
        ),
        "success in an earlier round": (
            replace(group("succeeded"), round=a_round(0, number=2)),
            False,
        ),
        "an empty round": (observed([a_pod(0)], [an_agent("w0", "ready")], round=a_round()), False),
    },
)
def test_complete_when_the_round_agrees(seen: Observed, complete: bool) -> None:
    found = end(seen)
    assert (found is not None and found.complete) == complete


LOST = observed([a_pod(0), a_dead_pod(1, exit_code=137)], [an_agent("w0")], round=a_round(0, 1))
IMAGE = "InvalidImageName of image NO"
GANG = {"failurePolicy": {"onPodLoss": "FailJob"}}
DEADLINE: dict[str, Any] = {"job": {"activeDeadlineSeconds": 60}, "active_since": NOW - 60}


def check_failure(found: Ending | None, expected: str) -> None:
    """Expected are the reason and words of the message, or nothing of a job that goes on."""
    reason, _, words = expected.partition(": ")
    assert (found.reason if found else "") == reason
    assert found is None or (words in found.message and not found.complete)


@pytest.mark.parametrize(
    ("expected", "seen", "fields"),
    [
        ("InvalidTemplate: no such field", group("running"), {"invalid": "no such field"}),
        ("TooManyFailures: boom", group("running"), {"budget": Budget(failures=4, last=BOOM)}),
        ("", group("running"), {"budget": Budget(failures=3, last=BOOM)}),
        ("PodLost: w1 has ended with exit code 137", LOST, {"job": GANG}),
        ("", LOST, {}),
        ("", group("running", "running"), {"job": GANG, "victims": frozenset({"w1"})}),
        ("LastCheckpointNotWritten: within saveDeadlineSeconds (3600): no space", saving(3600), {}),
        ("LastCheckpointNotWritten: (60)", saving(60), {"job": {"saveDeadlineSeconds": 60}}),
        ("", saving(59), {"job": {"saveDeadlineSeconds": 60}}),
        ("DeadlineExceeded: (60)", saving(59), DEADLINE),
        ("DeadlineExceeded: (60)", group("running"), DEADLINE),
        ("", group("running"), {"job": {"activeDeadlineSeconds": 60}, "active_since": NOW - 59}),
        ("CannotStart: NO", observed([a_pending_pod(0, waiting=IMAGE)]), {}),
        ("", observed([a_pending_pod(0, waiting=IMAGE)]), {"job": {"status": {"round": 3}}}),
    ],
)
def test_failed_at_a_limit(expected: str, seen: Observed, fields: dict[str, Any]) -> None:
    check_failure(end(seen, **fields), expected)


def test_success_goes_before_every_limit() -> None:
    found = end(group("succeeded"), Budget(failures=9, last=BOOM), **DEADLINE)
    assert found is not None
    assert found.complete


def test_looks_again_at_the_deadline() -> None:
    job, memory = a_job(activeDeadlineSeconds=60), Memory(active_since=NOW - 53)
    for seen, seconds in ((group("running"), 7), (saving(3595), 5)):
        workers, target = assess_workers(seen), a_target(job)
        found = decide_ending(job, target, seen, workers, memory, NONE_FAILED)
        assert found[1] == NOW + seconds


RULE = parse_rules([on_codes("FailJob", 42)])[0]


@pytest.mark.parametrize(
    ("expected", "budget", "limit"),
    [
        ("FailurePolicyRule: failurePolicy.rules[0]", Budget(fatal=replace(BOOM, rule=RULE)), None),
        (
            "BackoffLimitExceeded: 4 failures since the job began, "
            "failurePolicy.backoffLimit allows 3",
            Budget(total=4),
            3,
        ),
        ("BackoffLimitExceeded: 1 failure since the job began", Budget(total=1), 0),
        ("", Budget(total=3), 3),
        ("", Budget(total=1000), None),
    ],
)
def test_failed_by_the_failure_policy(expected: str, budget: Budget, limit: int | None) -> None:
    spec = {} if limit is None else {"failurePolicy": {"backoffLimit": limit}}
    check_failure(end(group("running"), budget, job=spec), expected)


def test_lost_member_on_which_a_rule_has_decided_is_no_reason_to_fail() -> None:
    assert end(LOST, job=GANG, excused={"w1"}) is None
    unheard = observed([a_pod(0)], [an_agent("w0")], round=a_round(0, size=2))
    status = {"workers": [{"name": "w0", "rank": 0}, {"name": "w1", "rank": 1}]}
    assert end(unheard, job={**GANG, "status": status}) is not None
    assert end(unheard, job={**GANG, "status": status}, excused={"w1"}) is None


def test_active_since_it_began_or_was_resumed() -> None:
    assert Memory().begin_active(NOW, stopped=False) == NOW
    assert Memory(active_since=NOW - 7).begin_active(NOW, stopped=False) == NOW - 7
    assert Memory(active_since=NOW - 7).begin_active(NOW, stopped=True) is None


@situations(
    "seconds, since, until",
    {"set": (60, NOW, NOW + 60), "suspended": (60, None, None), "unset": (None, NOW, None)},
)
def test_deadline(seconds: int | None, since: float | None, until: float | None) -> None:
    fields = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    job, memory, seen = a_job(**fields), Memory(active_since=since), group("running")
    found = decide_ending(job, a_target(job), seen, assess_workers(seen), memory, NONE_FAILED)
    assert found == (None, until)


LONG_AGO = NOW - GIVE_UP_SECONDS
PULL = "ImagePullBackOff of image nope:1: not found"


@situations(
    "pods, hopeless",
    {
        "no image has such a name": (
            [a_pending_pod(0, waiting="InvalidImageName", stuck_since=NOW)],
            True,
        ),
        "pulled in vain for long": ([a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO)], True),
        "has waited for room for long": (
            [a_pending_pod(0, waiting=PULL, created_at=1.0, stuck_since=NOW - 1)],
            False,
        ),
        "pulled in vain for a moment": (
            [a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO + 1)],
            False,
        ),
        "one of them runs": (
            [a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO), a_pod(1)],
            False,
        ),
        "one only waits for room": (
            [
                a_pending_pod(0, waiting=PULL, stuck_since=LONG_AGO),
                a_pending_pod(1, waiting="Unschedulable: full"),
            ],
            False,
        ),
        "there are none yet": ([], False),
    },
)
def test_cannot_start(pods: list[PodView], hopeless: bool) -> None:
    assert bool(why_it_cannot_start(pods, NOW)[0]) == hopeless


def test_looks_again_when_patience_ends() -> None:
    assert why_it_cannot_start([a_pending_pod(0, waiting=PULL, stuck_since=NOW - 10)], NOW) == (
        "",
        NOW - 10 + GIVE_UP_SECONDS,
    )
