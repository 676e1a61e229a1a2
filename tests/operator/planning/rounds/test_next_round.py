from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import AgentView
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.rounds.next_round import Cause, Decision
from elastic_pytorch_operator.planning.workers.liveness import Candidate

from tests.operator.builders import NOW, a_candidate, a_round, an_agent, decide_next, declare_next
from tests.situations import situations


def ready(*indices: int, **fields: Any) -> list[Candidate]:
    return [a_candidate(index, **fields) for index in indices]


def workers(decision: Decision) -> list[str] | None:
    return list(decision.round.workers) if decision.round else None


JUST_READY = {"state_since": NOW - 0.2}
STARTING = {"container_runs": True}


@situations(
    "candidates, wanted, minimum, expected",
    {
        "all wanted are ready: at once": (ready(0, 1, 2, **JUST_READY), 3, 1, ["w0", "w1", "w2"]),
        "fewer than the minimum: waits": (ready(0, 1), 4, 3, None),
        "the minimum has just come: waits for more": (ready(0, 1, **JUST_READY), 3, 2, None),
        "no other worker has come for the settle time": (ready(0, 1), 3, 2, ["w0", "w1"]),
        "one more is about to be ready: waits": (
            [*ready(0, 1, state_since=NOW - 5), a_candidate(2, "starting", **STARTING)],
            3,
            2,
            None,
        ),
        "one more takes too long: goes without": (
            [*ready(0, 1), a_candidate(2, "starting", **STARTING)],
            3,
            2,
            ["w0", "w1"],
        ),
        "one more is Pending: does not wait": (
            [*ready(0, 1, state_since=NOW - 5), a_candidate(2, "starting")],
            3,
            2,
            ["w0", "w1"],
        ),
        "more than wanted: the lowest indices": (ready(3, 2, 1, 0), 2, 1, ["w0", "w1"]),
        "two pods of one index: one of them": (
            [a_candidate(0), a_candidate(0, worker="w0b"), a_candidate(1)],
            3,
            2,
            ["w0", "w1"],
        ),
        "leaving and gone do not count": (
            [a_candidate(0), a_candidate(1, "leaving"), a_candidate(2, "gone")],
            3,
            1,
            ["w0"],
        ),
    },
)
@situations("current", {"never-trained": None, "paused": a_round(number=4)})
def test_first_round(
    current: Round | None,
    candidates: list[Candidate],
    wanted: int,
    minimum: int,
    expected: list[str] | None,
) -> None:
    decision = decide_next(current, candidates, wanted, job={"minimum": minimum})
    assert workers(decision) == expected
    if decision.round:
        assert decision.round.number == (current.number if current else 0) + 1


def test_worker_of_a_group_that_has_stopped_comes_before_newcomers() -> None:
    known = [an_agent("w0", "ready", 0), an_agent("w1", "ready", 0), an_agent("w2", "ready", 2)]
    declared = declare_next(a_round(number=3), ready(0, 1, 2), wanted=2, agents=known)
    assert set(declared.workers) == {"w0", "w2"}


def test_first_round_waiting_says_when_to_look_again() -> None:
    decision = decide_next(None, ready(0, 1, state_since=NOW - 0.2), job={"minimum": 2})
    assert decision.recheck_at == pytest.approx(NOW + 0.8)


GROUP = a_round(0, 1, 2, number=7)


def failed(index: int, **fields: Any) -> Candidate:
    return a_candidate(index, failed=True, state_since=NOW - 0.1, **fields)


@situations(
    "candidates, expected, reason",
    {
        "nothing has happened": (ready(0, 1, 2), None, ""),
        "a pod is gone": ([*ready(0, 1), a_candidate(2, "gone")], ["w0", "w1"], "WorkerLost"),
        "rank 0 is gone: the last rank takes its place": (
            [a_candidate(0, "gone"), *ready(1, 2)],
            ["w2", "w1"],
            "WorkerLost",
        ),
        "a pod is no longer known": (ready(0, 2), ["w0", "w2"], "WorkerLost"),
        "a pod is being drained": (
            [*ready(0, 2), a_candidate(1, "leaving", why="is being deleted")],
            ["w0", "w2"],
            "WorkerLeaving",
        ),
        "scaled down": (
            [*ready(0, 1), a_candidate(2, "leaving", retired=True)],
            ["w0", "w1"],
            "ScaledDown",
        ),
        "a replacement is ready as a pod is lost: one round": (
            [*ready(0, 1, 3), a_candidate(2, "gone")],
            ["w0", "w1", "w3"],
            "WorkerLost",
        ),
        "a worker failed, all have spoken: the same group": (
            [failed(0), *ready(1, 2)],
            ["w0", "w1", "w2"],
            "WorkerFailed",
        ),
        "a worker failed because a peer is gone": (
            [failed(0), failed(1), a_candidate(2, "gone")],
            ["w0", "w1"],
            "WorkerLost",
        ),
        "a torchrun gives up: the group goes on without it": (
            [failed(0, gives_up=True), *ready(1, 2)],
            ["w2", "w1"],
            "WorkerFailed",
        ),
        "all give up: no round for them": (
            [failed(i, gives_up=True) for i in range(3)],
            [],
            "BelowMinimum",
        ),
        "no worker is left: all stop": (
            [a_candidate(i, "gone") for i in range(3)],
            [],
            "BelowMinimum",
        ),
    },
)
def test_change_of_a_running_group(
    candidates: list[Candidate], expected: list[str] | None, reason: str
) -> None:
    decision = decide_next(GROUP, candidates)
    assert workers(decision) == expected
    if decision.round:
        assert (decision.round.number, decision.round.reason) == (8, reason)


def test_failure_whose_cause_is_not_known_yet_nudges_and_waits() -> None:
    group = [failed(0), a_candidate(1), a_candidate(2, heard_at=NOW - 0.5, recheck_at=NOW + 0.2)]
    decision = decide_next(GROUP, group, failure_open=True)
    assert (decision.round, decision.nudge, decision.recheck_at) == (None, True, NOW + 0.2)


def test_failed_group_is_held_back_but_a_lost_one_is_not() -> None:
    held = decide_next(GROUP, [failed(0), *ready(1, 2)], backoff_until=NOW + 4)
    assert held.round is None
    assert held.recheck_at == NOW + 4
    assert (
        decide_next(GROUP, [*ready(0, 1), a_candidate(2, "gone")], backoff_until=NOW + 4).round
        is not None
    )


def test_newcomers_join_in_one_round_when_nobody_more_is_on_the_way() -> None:
    group = a_round(0, 1, number=3)
    both = [*ready(0, 1), *ready(2, 3, state_since=NOW)]
    assert workers(decide_next(group, both, wanted=4)) == ["w0", "w1", "w2", "w3"]
    one = [*ready(0, 1), a_candidate(2, state_since=NOW), a_candidate(3, "starting", **STARTING)]
    assert workers(decide_next(group, one, wanted=4)) is None
    settled = [*ready(0, 1), a_candidate(2, state_since=NOW - 1.1), a_candidate(3, "starting")]
    assert workers(decide_next(group, settled, wanted=4)) == ["w0", "w1", "w2"]


def test_worker_that_no_connection_leads_to_joins_nothing() -> None:
    group, lost = a_round(0, 1, 2, number=3), a_candidate(2, "gone", worker="w2")
    spare, away = a_candidate(3), a_candidate(3, disconnected_since=NOW)
    assert workers(decide_next(group, [*ready(0, 1), lost, spare])) == ["w0", "w1", "w3"]
    assert workers(decide_next(group, [*ready(0, 1), lost, away])) == ["w0", "w1"], (
        "it may have been on the same node"
    )
    assert (
        workers(decide_next(group, [*ready(0, 1), a_candidate(2, disconnected_since=NOW)])) is None
    ), "a member may be back in a moment"


@situations(
    "agent", {"finishing": an_agent("w0", "succeeded"), "saving": an_agent("w0", saving_since=NOW)}
)
def test_newcomers_do_not_disturb_a_group_that_finishes(agent: AgentView) -> None:
    group, agents = a_round(0, 1), [agent]
    assert decide_next(group, ready(0, 1, 2), agents=agents).round is None
    assert (
        decide_next(
            group, [a_candidate(0), a_candidate(1, "gone"), a_candidate(2)], agents=agents
        ).round
        is not None
    )


def test_taken_over_round_with_unheard_members_is_formed_anew() -> None:
    assert workers(decide_next(a_round(0, 1, size=3), ready(0, 1))) == ["w0", "w1"]


def unheard(index: int) -> Candidate:
    return a_candidate(index, "starting", unheard=True, recheck_at=NOW + 5)


@situations(
    "current, candidates, expected",
    {
        "the rest of the group may train": (
            a_round(0, 1, size=3),
            [*ready(0, 1), unheard(2)],
            None,
        ),
        "a newcomer waits, too": (a_round(0, size=2), [*ready(0), unheard(1), *ready(2)], None),
        "nothing is heard of the group": (None, [unheard(0), unheard(1), *ready(2)], None),
        "a member has failed": (
            a_round(0, 1, size=3),
            [a_candidate(0), failed(1), unheard(2)],
            ["w0", "w1"],
        ),
        "another member is gone": (a_round(0, size=3), [a_candidate(0), unheard(2)], ["w0"]),
        "another member leaves": (
            a_round(0, 1, size=3),
            [a_candidate(0), a_candidate(1, "leaving"), unheard(2)],
            ["w0"],
        ),
        "those that wait are no members": (
            a_round(0, 1, 2),
            [*ready(0, 1), a_candidate(2, "gone"), unheard(3)],
            ["w0", "w1"],
        ),
        "the group has been stopped": (a_round(), [*ready(0, 1), unheard(2)], ["w0", "w1"]),
    },
)
def test_group_stands_while_its_missing_members_may_train(
    current: Round | None, candidates: list[Candidate], expected: list[str] | None
) -> None:
    decision = decide_next(current, candidates, last_number=1)
    assert workers(decision) == expected
    if expected is None:
        assert decision.recheck_at == NOW + 5


def test_group_that_has_never_been_does_not_wait_for_an_unheard_worker() -> None:
    assert workers(decide_next(None, [*ready(0, 1), unheard(2)])) == ["w0", "w1"]


def test_store_is_served_where_rank_zero_keeps_a_port() -> None:
    first = declare_next(None, ready(0, 1, 2))
    assert first.store_port == 29510
    silent = declare_next(None, [a_candidate(0, port=0), a_candidate(1), a_candidate(2)])
    assert silent.store_port == 29500


def test_cause_of_a_failure_is_told_in_its_own_words() -> None:
    failed = {"failed": True, "state_since": NOW}
    group = [
        a_candidate(0, **failed),
        a_candidate(1, **failed, failure="ValueError: boom"),
        a_candidate(2, heard_at=NOW + 1),
    ]
    declared = declare_next(a_round(0, 1, 2), group)
    assert (declared.reason, declared.cause) == ("WorkerFailed", "w1 has failed: ValueError: boom")


@pytest.mark.parametrize(
    ("newcomers", "ready_"), [([2], "w2 is ready"), ([2, 3], "w2, w3 are ready")]
)
def test_growth_that_waits_is_explained(newcomers: list[int], ready_: str) -> None:
    status = {"operatorState": {"lastGrowthTime": "2025-12-31T23:59:20Z"}}
    job = {"resizePolicy": {"minSecondsBetweenGrowths": 60}, "status": status}
    held = decide_next(a_round(0, 1), ready(0, 1, *newcomers), 4, grown_at=NOW - 40, job=job)
    until = (
        "the group may grow at 2026-01-01T00:00:20Z, as resizePolicy.minSecondsBetweenGrowths is 60"
    )
    assert held.cooling == f"{ready_}; {until}"


def test_newcomers_wait_until_the_group_may_grow() -> None:
    group, seen = a_round(0, 1), ready(0, 1, 2)
    held = decide_next(group, seen, grown_at=NOW + 4)
    assert (held.round, held.recheck_at) == (None, NOW + 4)
    assert decide_next(group, seen, grown_at=NOW).round is not None
    paused = decide_next(
        group, seen, grown_at=NOW - 40, job={"resizePolicy": {"minSecondsBetweenGrowths": 60}}
    )
    assert (paused.round, paused.recheck_at) == (None, NOW + 20)
    assert decide_next(None, seen, grown_at=NOW + 4).round is not None, (
        "a group that stands still forms at once"
    )
    loss = [a_candidate(0), a_candidate(1, "gone"), a_candidate(2)]
    assert workers(decide_next(group, loss, grown_at=NOW + 4)) == ["w0", "w2"], (
        "a round that forms anyway takes them along"
    )
    shrinks = [*ready(0, 1, 3), a_candidate(2, "leaving", retired=True)]
    assert workers(decide_next(a_round(0, 1, 2), shrinks, wanted=2, grown_at=NOW + 4)) == [
        "w0",
        "w1",
    ]


def test_group_whose_workers_are_replaced_stops() -> None:
    restart = Cause("GroupRestarted", "a rule says so")
    declared = declare_next(GROUP, ready(0, 1, 2), restart=restart)
    assert (declared.size, declared.reason, declared.cause) == (0, *restart)
    assert declare_next(a_round(number=2), ready(0, 1, 2), restart=restart).size == 3


@situations(
    "port, expected",
    {
        "another port has been reported": (29600, (["w0", "w1"], 29600)),
        "it serves the store of the present round at its port": (
            GROUP.store_port,
            (["w1", "w0"], 29511),
        ),
    },
)
def test_store_is_not_where_the_present_one_is(port: int, expected: tuple[list[str], int]) -> None:
    """A new process would reach the store of a process that is about to end."""
    declared = declare_next(
        GROUP, [a_candidate(0, port=port), a_candidate(1), a_candidate(2, "gone")]
    )
    assert (list(declared.workers), declared.store_port) == expected


def test_only_worker_serves_its_own_store() -> None:
    declared = declare_next(
        GROUP,
        [a_candidate(0, port=GROUP.store_port), a_candidate(1, "gone"), a_candidate(2, "gone")],
    )
    assert declared.store_port == GROUP.store_port
