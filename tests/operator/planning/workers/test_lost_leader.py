"""Who was lost with the node of the operator that led before."""

from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.workers.lost_leader import lost_with_leader

from tests.operator.builders import a_dead_pod, a_pending_pod, a_pod, a_round, an_agent, observed

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
        {"lost_leader_node": ""},  # it gave its lease back, or nobody knows where it ran
        {"lost_leader_node": "node-1"},  # it ran elsewhere
        {"agents": [an_agent("w0"), an_agent("w1")]},  # the group trains on
        {"agents": [an_agent("w0", "failed"), an_agent("w1"), an_agent("w2")]},  # it has spoken
        {"agents": [an_agent("w0", "failed", 0), an_agent("w1")]},  # the failure of an earlier round
        {"agents": []},  # nobody has spoken
        {"heard_before": frozenset({"w0", "w1"})},  # its agent has yet to speak for the first time
        {"pods": [*PODS[:2], a_pending_pod(2, node="node-2")]},
        {"pods": [*PODS[:2], a_dead_pod(2, node="node-2")]},  # the kubelet has told of its end
        {"round": None},
    ],
)
def test_one_witness_less_and_it_is_waited_for(fields: dict[str, Any]) -> None:
    assert lost_with_leader(after_a_takeover(**fields)) == frozenset()
