from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import AgentView, NodeView, Observed, Progress
from elastic_pytorch_operator.planning.workers.liveness import assess_workers
from elastic_pytorch_operator.planning.workers.silence import (
    NO_GROUP,
    SILENCE_SECONDS,
    Silences,
    lost_with_leader,
    takeover_grace_until,
)

from tests.operator.builders import (
    NOW,
    a_dead_pod,
    a_pending_pod,
    a_pod,
    a_round,
    an_agent,
    observed,
)
from tests.situations import situations


def nearly(moment: float | None) -> Any:
    return None if moment is None else pytest.approx(moment)


LONG = 2000.0  # seconds ago


@pytest.mark.parametrize(
    ("listening", "lets_in", "arrived", "until"),
    [
        (0.5, LONG, 100.0, NOW + 4.5),  # all that live come within five seconds
        (5.0, LONG, 100.0, None),
        (5.0, LONG, 0.2, NOW + 0.8),  # but they still keep coming
        (100.0, LONG, 0.2, NOW + 0.8),  # thousands take their time
        (299.5, LONG, 0.2, NOW + 0.5),
        (300.0, LONG, 0.2, None),  # the wait ends
        # An agent that was turned away comes again within five seconds.
        (20.0, 0.2, 100.0, NOW + 4.8),
        (20.0, 5.0, 100.0, None),
        (29.0, 0.2, 100.0, NOW + 1.0),
        (30.0, 0.2, 100.0, None),  # strangers can hold nothing up for longer
        (60.0, 50.0, 1.5, NOW + 3.5),  # further agents come, one after the other
        (60.0, 61.0, 1.5, None),  # none has had to wait since this operator began to listen
    ],
)
def test_silent_worker_is_waited_for(
    listening: float, lets_in: float, arrived: float, until: float | None
) -> None:
    found = observed(
        [a_pod(0), a_pod(1)],
        [an_agent("w0", "failed")],
        listening_since=NOW - listening,
        lets_in_since=NOW - lets_in,
        arrived_at=NOW - arrived,
    )
    assert takeover_grace_until(found) == nearly(until)


@pytest.mark.parametrize(
    ("states", "arrived", "until"),
    [
        (("running",), 2.0, NOW + 8),  # on other nodes, agents learn the leader's address later
        (("running", "running"), 9.0, NOW + 1),
        (("running",), 10.0, None),
        (("running", "failed"), 2.0, None),  # the missing worker may be the cause
        (("stopping",), 2.0, None),
    ],
)
def test_group_that_runs_as_far_as_it_is_heard_is_left_alone_for_longer(
    states: tuple[str, ...], arrived: float, until: float | None
) -> None:
    pods = [a_pod(0), a_pod(1), a_pod(2)]
    agents = [an_agent(f"w{index}", state) for index, state in enumerate(states)]
    found = observed(pods, agents, listening_since=NOW - 20, arrived_at=NOW - arrived)
    assert takeover_grace_until(found) == until


def test_whole_group_that_is_not_heard_is_waited_for_longer() -> None:
    def listens(*speaking: str) -> float | None:
        pods, agents = [a_pod(0), a_pod(1), a_pod(2)], [an_agent(name) for name in speaking]
        known = frozenset({"w0", "w1"})
        return takeover_grace_until(
            observed(
                pods, agents, listening_since=NOW - 6, arrived_at=NOW - 100, heard_before=known
            )
        )

    assert listens() == NOW + 4
    assert listens("w2") == NOW + 4, "a newcomer says nothing of the group"
    assert listens("w0") is None


def test_nobody_is_waited_for_once_all_have_spoken() -> None:
    found = observed(
        [a_pod(0), a_pending_pod(1)], [an_agent("w0")], listening_since=NOW, arrived_at=NOW
    )
    assert takeover_grace_until(found) is None


@pytest.mark.parametrize(
    ("listening", "arrived", "until"),
    [
        (0.3, 0.1, NOW + 0.7),  # a second, for its agent may be at a try that takes half of one
        (1.2, 0.1, NOW + 0.4),  # agents still come
        (1.2, 0.5, None),
        (299.9, 0.1, NOW + 0.1),
        (300.0, 0.1, None),
    ],
)
def test_worker_lost_with_the_leaders_node_is_not_waited_for_as_long(
    listening: float, arrived: float, until: float | None
) -> None:
    found = observed(
        [a_pod(0), a_pod(1, node="node-1")],
        [an_agent("w0", "failed")],
        round=a_round(0, size=2),
        heard_before=frozenset({"w0", "w1"}),
        lost_leader_node="node-1",
        listening_since=NOW - listening,
        arrived_at=NOW - arrived,
    )
    assert takeover_grace_until(found) == nearly(until)


def test_with_another_silent_worker_elsewhere_all_are_waited_for() -> None:
    found = observed(
        [a_pod(0), a_pod(1, node="node-1"), a_pod(2)],
        [an_agent("w0", "failed")],
        round=a_round(0, size=3),
        heard_before=frozenset({"w0", "w1", "w2"}),
        lost_leader_node="node-1",
        listening_since=NOW - 2.0,
        arrived_at=NOW - 1.5,
    )
    assert takeover_grace_until(found) == NOW + 3.0


SINCE, ARRIVED_AT = NOW - 20, NOW - 19


def stepping(worker: str, state: str = "running", seconds_ago: float = 1.0) -> AgentView:
    return an_agent(worker, state, progress=Progress(step=7), progressed_at=NOW - seconds_ago)


@situations(
    "agents, fields, until",
    {
        "nothing is heard of the group": ([], {}, SINCE + 120),
        "only a newcomer is heard": ([an_agent("w2", "ready", round_=0)], {}, SINCE + 120),
        "there was no group": ([], {"heard_before": frozenset()}, SINCE),
        "a part steps": ([stepping("w0")], {}, NOW + 9),
        "a part has stopped to step": ([stepping("w0", seconds_ago=15.0)], {}, NOW - 5),
        "a part steps, and every node has the address by now": (
            [stepping("w0")],
            {"listening_since": NOW - 115},
            NOW + 5,
        ),
        "a part steps, and another has failed": (
            [stepping("w0"), stepping("w1", "failed")],
            {},
            SINCE,
        ),
        "a part runs, and reports no steps": ([an_agent("w0")], {}, SINCE + 120),
        "a part reports no steps, and has failed": ([an_agent("w0", "failed")], {}, SINCE),
        "a part runs, as a round without the rest": (
            [stepping("w0")],
            {"round": a_round(0)},
            SINCE,
        ),
        "a part runs of a round with the rest": (
            [stepping("w0")],
            {"round": a_round(0, size=2)},
            NOW + 9,
        ),
        "all are heard": ([stepping("w0"), stepping("w1")], {}, SINCE),
    },
)
def test_agents_that_a_new_leader_does_not_hear_are_taken_for_alive(
    agents: list[AgentView], fields: dict[str, Any], until: float
) -> None:
    known = {
        "listening_since": SINCE,
        "arrived_at": ARRIVED_AT,
        "heard_before": frozenset({"w0", "w1"}),
    } | fields
    seen = observed([a_pod(0), a_pod(1), a_pod(2)], agents, last_heard_at=NOW, **known)
    missing = seen.heard_before - seen.agents.keys()
    found = Silences(seen).unheard(min(missing)).until if missing else SINCE
    assert found == (max(until, ARRIVED_AT + 15) if missing else until)


PODS = [a_pod(0), a_pod(1), a_pod(2, node="node-2")]
BROKEN = [an_agent("w0", "failed"), an_agent("w1", "failed")]


def after_a_takeover(**fields: Any) -> Observed:
    found: dict[str, Any] = {
        "pods": PODS,
        "agents": BROKEN,
        "round": a_round(0, 1, size=3),
        "heard_before": frozenset({"w0", "w1", "w2"}),
        "lost_leader_node": "node-2",
    }
    return observed(**{**found, **fields})


def test_silent_worker_of_a_broken_group_beside_a_leader_that_let_its_lease_run_out() -> None:
    assert lost_with_leader(after_a_takeover()) == {"w2"}


@pytest.mark.parametrize(
    "fields",
    [
        {"lost_leader_node": ""},  # it gave its lease back, or its node is not known
        {"lost_leader_node": "node-1"},  # it ran elsewhere
        {"agents": [an_agent("w0"), an_agent("w1")]},  # the group trains on
        {"agents": [an_agent("w0", "failed"), an_agent("w1"), an_agent("w2")]},  # it has spoken
        # The failure of an earlier round.
        {"agents": [an_agent("w0", "failed", 0), an_agent("w1")]},
        {"agents": []},  # no agent has reported
        {"heard_before": frozenset({"w0", "w1"})},  # its agent has yet to speak for the first time
        {"pods": [*PODS[:2], a_pending_pod(2, node="node-2")]},
        {"pods": [*PODS[:2], a_dead_pod(2, node="node-2")]},  # the kubelet has told of its end
        {"round": None},
    ],
)
def test_one_witness_less_and_it_is_waited_for(fields: dict[str, Any]) -> None:
    assert lost_with_leader(after_a_takeover(**fields)) == frozenset()


@pytest.mark.parametrize(("listening", "until"), [(100.0, NOW + 14), (320.0, NOW - 5)])
def test_agents_that_keep_arriving_keep_no_worker_alive_for_longer_than_five_minutes(
    listening: float, until: float
) -> None:
    moments = {"listening_since": NOW - listening, "arrived_at": NOW - 1, "last_heard_at": NOW}
    seen = observed(
        [a_pod(0), a_pod(1)],
        [an_agent("w1", "failed")],
        heard_before=frozenset({"w0", "w1"}),
        **moments,
    )
    assert Silences(seen).unheard("w0") == (NO_GROUP, until)


def test_newcomer_is_not_lost_when_no_agent_is_heard() -> None:
    """As while the operator itself is cut off: its silence is that of all others."""
    newcomer = an_agent("w0", "ready", 0, heard_at=NOW - 10)
    deaf, hears = (
        observed([a_pod(0)], [newcomer], last_heard_at=NOW - silent_for) for silent_for in (10, 0)
    )
    assert [found.liveness for found in assess_workers(deaf)] == ["ready"]
    assert [found.liveness for found in assess_workers(hears)] == ["gone"]


@pytest.mark.parametrize("heard", [(), ("w0",)], ids=["another job is heard", "a member is heard"])
@pytest.mark.parametrize(
    ("again", "found"), [(0.0, "ready"), (4.9 + SILENCE_SECONDS, "ready"), (40.0, "gone")]
)
def test_agents_have_time_to_come_back_after_none_was_heard(
    heard: tuple[str, ...], again: float, found: str
) -> None:
    """As after a broken network: who is heard first makes no other one lost."""
    group = ["w0", "w1", "w2"]
    agents = [an_agent(name, heard_at=NOW if name in heard else NOW - again - 60) for name in group]
    seen = observed(
        [a_pod(i) for i in range(3)],
        agents,
        round=a_round(0, 1, 2),
        last_heard_at=NOW,
        heard_again_at=NOW - again,
    )
    assert {each.liveness for each in assess_workers(seen) if each.worker not in heard} == {found}


def test_group_that_falls_silent_is_not_lost_at_the_moment_when_a_part_of_it_would_be() -> None:
    for heard_at in (NOW - 0.1 * tenth for tenth in range(1, 200)):
        agents = [an_agent(f"w{index}", heard_at=heard_at) for index in range(2)]
        seen = observed([a_pod(0), a_pod(1)], agents, round=a_round(0, 1))
        later = replace(
            seen, now=heard_at + SILENCE_SECONDS, last_heard_at=heard_at + SILENCE_SECONDS
        )
        assert {found.liveness for found in assess_workers(later)} == {"ready"}


def test_agent_on_a_lost_node_is_looked_at_when_it_has_been_silent_for_long_enough() -> None:
    nodes = {"node-0": NodeView("node-0", ready=False), "node-1": NodeView("node-1")}
    [found] = assess_workers(
        observed([a_pod(0)], [an_agent("w0", heard_at=NOW - 1)], nodes=nodes, last_heard_at=NOW)
    )
    assert (found.liveness, found.recheck_at) == ("ready", NOW + 0.5)
