"""What the agent does about a round that comes while torch's loop is not waiting."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from elastic_pytorch.agent.elastic_agent import ElasticAgent
from elastic_pytorch.agent.rendezvous import OperatorRendezvous
from elastic_pytorch.agent.settings import read_settings
from elastic_pytorch.operator_link.rounds import Round
from elastic_pytorch.progress.receiver import ProgressReceiver

pytestmark = pytest.mark.torch


@pytest.fixture
def rendezvous() -> Iterator[OperatorRendezvous]:
    """One that has taken round 1."""
    progress = ProgressReceiver()
    url = "http://127.0.0.1:1"
    environ = {"ELASTIC_PYTORCH_OPERATOR_URL": url, "ELASTIC_PYTORCH_JOB_UID": "job"}
    made = OperatorRendezvous(read_settings(environ), progress, 1)
    made.taken = made.client.newest = Round(1)
    yield made
    made.store_port.close()
    progress.close()


def test_round_that_comes_after_a_look_at_the_workers_does_not_stop_them(
    rendezvous: OperatorRendezvous,
) -> None:
    agent: Any = SimpleNamespace(
        _wait_for_news=lambda: None,
        _stacks_wanted=False,
        _client=rendezvous.client,
        _rendezvous_handler=rendezvous,
        _look_at_exits=lambda: None,
        _way_to_next_round=lambda: None,
        _signals=SimpleNamespace(received=None),
    )
    ElasticAgent._monitor_workers(agent, agent)
    rendezvous.client.newest = Round(2, orderly_since=1)
    assert rendezvous.num_nodes_waiting() == 0, "they may reach a step boundary"


def test_round_that_comes_after_sigterm_was_looked_at_is_not_left(
    rendezvous: OperatorRendezvous,
) -> None:
    rendezvous.client.newest = Round(2, orderly_since=1)
    agent: Any = SimpleNamespace(_rendezvous_handler=rendezvous, _leave_at=lambda: float("inf"))
    assert not ElasticAgent._may_leave(agent, None)
