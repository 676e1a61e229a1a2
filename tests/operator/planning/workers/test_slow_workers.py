"""Which slow worker is replaced: one row for each situation, and what a new leader knows of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Certainty
from elastic_pytorch_operator.model.observed import NodeView, Observed
from elastic_pytorch_operator.model.operator_state import OperatorState, read_operator_state
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.slow_workers import (
    HOUR_SECONDS,
    MAX_REMEMBERED,
    MAX_WATCHED,
    NO_RELIEF,
    PREPARE_SECONDS,
    REMEMBER_SECONDS,
    Moment,
    Move,
    Outcome,
    Relief,
    SlowWorkers,
    recall_slow_workers,
    relieve_slow_workers,
)

from tests.operator.builders import NOW, TIME, a_dead_pod, a_job, a_pending_pod, a_pod, a_round, a_target, an_agent, observed

POLICY = {"replaceStragglers": {"slowdownPercent": 50, "afterSeconds": 60}}
LONG_AGO = Moment(NOW - 60, "2025-12-31T23:59:00Z")
BEFORE = SlowWorkers({"w1": LONG_AGO})
SLOW = {"w1": 1.84}
WHY = "leaves node node-1, where it works 1.8 times as long in a step as the group's median rank"


def moved(
    worker: str = "w1", outcome: Outcome = Outcome.REPLACED, *, ago: float = 10.0, rank: int = 1, node: str = "node-1"
) -> Move:
    return Move(worker, int(worker[1]), rank, node, "1.8", Moment(NOW - ago, TIME), outcome)


def seen(**fields: Any) -> Observed:
    """Three workers on nodes of their own, and another node."""
    pods = [a_pod(index, node=f"node-{index}") for index in range(3)] + list(fields.pop("more", ()))
    agents = fields.pop("agents", [an_agent(f"w{index}") for index in range(3)])
    nodes = fields.pop("nodes", {f"node-{n}": NodeView(f"node-{n}") for n in range(4)})
    return observed(pods, agents, **{"round": a_round(0, 1, 2), "nodes": nodes, **fields})


def decide(
    slow: Mapping[str, float] = SLOW,
    known: SlowWorkers = BEFORE,
    now: Observed | None = None,
    *,
    avoided: tuple[str, ...] = (),
    **job: Any,
) -> Relief:
    parsed = a_job(**{"resizePolicy": POLICY, **job})
    return relieve_slow_workers(parsed, a_target(parsed), now or seen(), slow, known, avoided)


def with_moves(*moves: Move, since: Mapping[str, Moment] = BEFORE.since) -> SlowWorkers:
    return SlowWorkers(since, moves)


def without(*names: str, **fields: Any) -> dict[str, NodeView]:
    """Nodes of which the fourth, where no worker is, differs."""
    return {f"node-{n}": NodeView(f"node-{n}", **(fields if n == 3 else {})) for n in range(4) if f"node-{n}" not in names}


def test_slow_worker_is_replaced() -> None:
    relief = decide()
    assert relief.leaving == {"w1": WHY}
    assert relief.nodes == {"node-1"}
    assert relief.memory.moves == [Move("w1", 1, 1, "node-1", "1.8", Moment(NOW, TIME))]
    assert [(event.reason, event.note) for event in relief.news] == [
        ("SlowWorker", f"w1 {WHY}, as soon as its replacement is ready")
    ]
    assert relief.recheck_at == NOW + PREPARE_SECONDS
    again = decide(known=relief.memory)
    assert (again.leaving, again.memory, again.news) == (relief.leaving, relief.memory, ())


@pytest.mark.parametrize(
    ("changed", "recheck_in"),
    [
        pytest.param({"resizePolicy": {}}, None, id="the job does not ask for it"),
        pytest.param({"slow": {}}, None, id="none is slow"),
        pytest.param({"slow": {"w1": 1.49}}, None, id="not slow enough"),
        pytest.param({"slow": {"w9": 2.0}}, None, id="not in the group"),
        pytest.param({"known": SlowWorkers()}, 60, id="slow since now"),
        pytest.param({"known": SlowWorkers({"w1": Moment(NOW - 59, TIME)})}, 1, id="not for long enough"),
        pytest.param({"replicas": 4}, None, id="a worker is missing"),
        pytest.param({"now": seen(round=None)}, None, id="no group"),
        pytest.param({"now": seen(agents=[an_agent("w0", "failed")])}, None, id="a worker has failed"),
        pytest.param({"now": seen(agents=[an_agent("w0", "succeeded")])}, None, id="a worker is done"),
    ],
)
def test_nothing_is_done(changed: dict[str, Any], recheck_in: float | None) -> None:
    relief = decide(**changed)
    assert not (relief.leaving or relief.kept or relief.news)
    assert relief.recheck_at == (None if recheck_in is None else NOW + recheck_in)


def test_what_was_known_is_forgotten_when_the_job_no_longer_asks_for_it() -> None:
    assert decide(known=with_moves(moved()), resizePolicy={}) == NO_RELIEF


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"now": seen(nodes={"node-1": NodeView("node-1")})}, id="the last node"),
        pytest.param({"now": seen(nodes=without(ready=False)), "avoided": ("node-0", "node-2")}, id="not ready"),
        pytest.param({"now": seen(nodes=without(unschedulable=True)), "avoided": ("node-0", "node-2")}, id="cordoned"),
        pytest.param(
            {"now": seen(nodes=without(end=AnnouncedEnd("taint", Certainty.SOFT))), "avoided": ("node-0", "node-2")},
            id="may end",
        ),
        pytest.param({"avoided": ("node-0", "node-2", "node-3")}, id="avoided for other reasons"),
        pytest.param({"avoided": ("node-0", "node-3"), "slow": {"w1": 1.84, "w2": 1.4}}, id="another straggler is there"),
        pytest.param(
            {"avoided": ("node-2", "node-3"), "known": with_moves(moved("w9", node="node-0", rank=9, ago=7200))},
            id="a slow worker has left it",
        ),
        pytest.param(
            {"now": seen(more=[a_pending_pod(3, unschedulable=True, avoids=frozenset({"node-9"}))])}, id="others are full"
        ),
    ],
)
def test_slow_worker_stays_where_no_other_node_could_take_its_replacement(changed: dict[str, Any]) -> None:
    relief = decide(**changed)
    assert relief.kept == ["w1 is slow, and stays on node node-1: no other node could take its replacement"]
    assert relief.leaving == {}


def test_slowest_is_first_and_one_at_a_time() -> None:
    since = {"w0": LONG_AGO, "w1": LONG_AGO}
    relief = decide({"w0": 1.6, "w1": 3.0}, SlowWorkers(since))
    assert relief.leaving.keys() == {"w1"}
    assert relief.nodes == {"node-0", "node-1"}
    assert decide({"w0": 9.0, "w1": 3.0}, relief.memory).leaving.keys() == {"w1"}


@pytest.mark.parametrize(
    ("moves", "waits"),
    [
        ([moved("w7", rank=7, ago=3599), moved("w8", rank=8)], NOW + 1),
        ([moved("w7", rank=7, ago=3600), moved("w8", rank=8)], None),
        ([moved("w7", Outcome.STAYED, rank=7, ago=3599), moved("w8", rank=8)], NOW + 1),
        ([moved("w7", rank=7, ago=REMEMBER_SECONDS - 9)] * MAX_REMEMBERED, NOW + 9),
        ([moved("w7", rank=7, ago=REMEMBER_SECONDS)] * MAX_REMEMBERED, None),
    ],
    ids=["two within an hour", "one within an hour", "tries count", "eight within a day", "forgotten after a day"],
)
def test_moves_are_few(moves: list[Move], waits: float | None) -> None:
    relief = decide(known=with_moves(*moves))
    if waits is None:
        assert relief.leaving == {"w1": WHY}
    else:
        assert relief.kept == ["w1 is slow, and waits: 2 slow workers an hour, 8 a day, are replaced"]
        assert relief.recheck_at == waits


@pytest.mark.parametrize(("index", "rank"), [(1, 0), (5, 1)], ids=["the same index", "the same rank"])
def test_worker_that_is_slow_after_a_move_as_well_is_not_moved_again(index: int, rank: int) -> None:
    before = Move("w1-a", index, rank, "node-3", "1.8", Moment(NOW - 600, TIME))
    relief = decide(known=with_moves(before))
    words = "w1 is slow on node node-1, as w1-a was on node node-3: the script probably gives it more work than others"
    assert relief.kept == [f"{words}, and it is not replaced again"]
    assert [(event.reason, event.note, event.warning) for event in relief.news] == [("StragglerKept", relief.kept[0], True)]
    assert relief.memory.moves[0].outcome is Outcome.REPEATED
    assert relief.nodes == frozenset(), "the node is not to blame"
    later = decide(known=relief.memory)
    assert (later.kept, later.news) == (relief.kept, []), "it is told once"
    old = with_moves(Move("w1-a", index, rank, "node-3", "1.8", Moment(NOW - 9 * REMEMBER_SECONDS, TIME), Outcome.REPEATED))
    assert decide(known=old).kept == relief.kept, "for as long as it is slow"
    assert decide({}, known=old).memory.moves == []


def test_worker_that_becomes_slow_long_after_a_move_is_moved_again() -> None:
    before = moved("w1-a", ago=HOUR_SECONDS + 60, node="node-3")
    assert decide(known=with_moves(before)).leaving == {"w1": WHY}


@pytest.mark.parametrize(
    "before", [moved(node="node-1", ago=61), moved("w5", node="node-3", ago=59)], ids=["on the same node", "slow before"]
)
def test_other_worker_of_the_same_rank_is_not_mistaken_for_a_replacement(before: Move) -> None:
    relief = decide(known=with_moves(before), now=seen(more=[a_dead_pod(5)]))
    assert all(move.outcome is Outcome.REPLACED for move in relief.memory.moves)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"slow": {}}, "it is no longer slow"),
        (
            {"now": seen(more=[a_pending_pod(3, unschedulable=True, avoids=frozenset({"node-1"}))])},
            "no other node has room for its replacement",
        ),
        ({"known": with_moves(moved(ago=PREPARE_SECONDS))}, "its replacement has not become ready in time"),
    ],
)
def test_move_is_given_up(changed: dict[str, Any], why: str) -> None:
    relief = decide(**{"known": with_moves(moved()), **changed})
    assert (relief.leaving, relief.nodes) == ({}, frozenset())
    assert [move.outcome for move in relief.memory.moves] == [Outcome.STAYED]
    assert [event.note for event in relief.news] == [f"w1 stays on node node-1: {why}"]
    words = "w1 is slow, and stays on node node-1 for now: its replacement has been given up"
    assert decide(known=with_moves(*relief.memory.moves)).kept == [words]


def test_move_goes_on_while_the_worker_is_less_slow_for_a_moment_or_has_left_the_group() -> None:
    going = with_moves(moved())
    assert decide({"w1": 1.2}, going).leaving == {"w1": WHY}
    left = seen(round=a_round(0, 2, 3))
    relief = decide({}, with_moves(moved(ago=9 * PREPARE_SECONDS)), left)
    assert (relief.leaving, relief.recheck_at) == ({"w1": WHY}, None)


@pytest.mark.parametrize("group", [None, a_round(0, 2, size=3)], ids=["no group is known", "some members are not known"])
def test_new_leader_decides_when_it_knows_all_members(group: Round | None) -> None:
    for known in (BEFORE, with_moves(moved())):
        relief = decide(known=known, now=seen(round=group))
        assert (relief.memory, relief.leaving, relief.kept, relief.news) == (known, {}, (), ())


def test_spare_on_the_slow_node_leaves_too() -> None:
    spare = seen(more=[a_pod(3, node="node-1"), a_pod(4, node="node-3"), a_dead_pod(5, node="node-1")])
    assert decide(now=spare).leaving == {"w1": WHY, "w3": "leaves node node-1, where a worker is slow"}


def test_few_are_watched_and_those_that_are_known_first() -> None:
    pods = [a_pod(index, node=f"node-{index}") for index in range(9)]
    group = observed(pods, [], round=a_round(*range(9)))
    slow = {f"w{index}": 2.0 + index for index in range(9)}
    relief = decide(slow, BEFORE, group, replicas=9, maximum=9)
    assert list(relief.memory.since) == ["w1", "w8", "w7", "w6"]
    assert len(relief.memory.since) == MAX_WATCHED


def test_new_leader_knows_what_the_status_says() -> None:
    memory = with_moves(moved("w0", Outcome.REPEATED, ago=0.0, rank=3), moved("w2", ago=0.0), since={"w1": LONG_AGO})
    status = OperatorState(slow_workers=memory.as_state()).as_status()
    assert recall_slow_workers(a_job(status=status), seen()) == SlowWorkers(memory.since, list(memory.moves))
    assert SlowWorkers().as_state() == {}
    assert recall_slow_workers(a_job(), seen()) == SlowWorkers({}, [])


@pytest.mark.parametrize("garbage", [7, "x", [], [1], {"since": 1}, {"moves": [{}]}, {"moves": 3}, {"moves": ["x"]}])
def test_what_a_new_leader_cannot_read_counts_as_not_written(garbage: Any) -> None:
    status = {"operatorState": {"slowWorkers": garbage}}
    assert read_operator_state(status).slow_workers == (garbage if isinstance(garbage, dict) else {})
    assert recall_slow_workers(a_job(status=status), seen()).as_state() == {}
