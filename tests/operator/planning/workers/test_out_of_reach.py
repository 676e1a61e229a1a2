"""Until when the agents that a new leader does not hear are taken for alive."""

from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import AgentView, Progress
from elastic_pytorch_operator.planning.workers.out_of_reach import out_of_reach_until

from tests.operator.builders import NOW, a_pod, a_round, an_agent, observed

SINCE = NOW - 20


def stepping(worker: str, state: str = "running", seconds_ago: float = 1.0) -> AgentView:
    return an_agent(worker, state, progress=Progress(step=7), progressed_at=NOW - seconds_ago)


@pytest.mark.parametrize(
    ("situation", "agents", "fields", "until"),
    [
        ("nothing is heard of the group", [], {}, SINCE + 120),
        ("only a newcomer is heard", [an_agent("w2", "ready", round_=0)], {}, SINCE + 120),
        ("there was no group", [], {"heard_before": frozenset()}, SINCE),
        ("a part steps", [stepping("w0")], {}, NOW + 9),
        ("a part has stopped to step", [stepping("w0", seconds_ago=15.0)], {}, NOW - 5),
        ("a part steps, and every node has the address by now", [stepping("w0")], {"listening_since": NOW - 115}, NOW + 5),
        ("a part steps, and another has failed", [stepping("w0"), stepping("w1", "failed")], {}, SINCE),
        ("a part runs, and reports no steps", [an_agent("w0")], {}, SINCE + 120),
        ("a part reports no steps, and has failed", [an_agent("w0", "failed")], {}, SINCE),
        ("a part runs, as a round without the rest", [stepping("w0")], {"round": a_round(0)}, SINCE),
        ("a part runs of a round with the rest", [stepping("w0")], {"round": a_round(0, size=2)}, NOW + 9),
        ("all are heard", [stepping("w0"), stepping("w1")], {}, SINCE),
    ],
)
def test_out_of_reach(situation: str, agents: list[AgentView], fields: dict[str, Any], until: float) -> None:
    known = {"listening_since": SINCE, "arrived_at": NOW - 19, "heard_before": frozenset({"w0", "w1"})} | fields
    assert out_of_reach_until(observed([a_pod(0), a_pod(1), a_pod(2)], agents, **known)) == until, situation
