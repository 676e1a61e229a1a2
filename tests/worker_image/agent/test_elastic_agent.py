"""What the agent does about a round that comes while torch's loop is not waiting."""

from types import SimpleNamespace
from typing import Any

import pytest
from elastic_pytorch.agent.elastic_agent import ElasticAgent
from elastic_pytorch.agent.rendezvous import OperatorRendezvous
from elastic_pytorch.operator_link.rounds import Round

pytestmark = pytest.mark.torch


def a_rendezvous(newest: Round) -> tuple[Any, OperatorRendezvous]:
    """A rendezvous of round 1, and the client that knows the newest one."""
    client: Any = SimpleNamespace(newest=newest, verdict=None)
    more: Any = {"store_port": None, "progress": None, "wait": None}
    rendezvous = OperatorRendezvous(client, run_id="job", **more)
    rendezvous.taken = Round(1)
    return client, rendezvous


def test_round_that_comes_after_a_look_at_the_workers_does_not_stop_them() -> None:
    client, rendezvous = a_rendezvous(Round(1))
    agent: Any = SimpleNamespace(
        _wait_for_news=lambda: None,
        _stacks_wanted=False,
        _client=client,
        _rendezvous_handler=rendezvous,
        _look_at_exits=lambda: None,
        _way_to_next_round=lambda: None,
        _signals=SimpleNamespace(received=None),
    )
    ElasticAgent._monitor_workers(agent, agent)
    client.newest = Round(2, orderly_since=1)
    assert rendezvous.num_nodes_waiting() == 0, "they may reach a step boundary"


def test_round_that_comes_after_sigterm_was_looked_at_is_not_left() -> None:
    _, rendezvous = a_rendezvous(Round(2, orderly_since=1))
    agent: Any = SimpleNamespace(_rendezvous_handler=rendezvous, _leave_at=lambda: float("inf"))
    assert not ElasticAgent._may_leave(agent, None)
