"""How often agents send heartbeats."""

import pytest
from elastic_pytorch_operator.agents.heartbeat_interval import HEARTBEATS_PER_SECOND, HeartbeatInterval


@pytest.mark.parametrize(("agents", "seconds"), [(0, 1.0), (1000, 1.0), (2000, 2.0), (10_000, 10.0)])
def test_operator_gets_a_limited_number_of_heartbeats(agents: int, seconds: float) -> None:
    interval = HeartbeatInterval()
    interval.count(agents, 5.0)
    assert interval.seconds == interval.longest(5.0) == seconds
    assert agents / interval.seconds <= HEARTBEATS_PER_SECOND


def test_shorter_interval_is_expected_only_once_each_agent_has_heard_of_it() -> None:
    interval = HeartbeatInterval()
    interval.count(10_000, 5.0)
    interval.count(1000, 100.0)
    assert interval.seconds == 1
    assert [interval.longest(now) for now in (100.0, 109.9, 110.0)] == [10, 10, 1]


def test_interval_that_becomes_shorter_in_steps_is_expected_after_the_longest() -> None:
    interval = HeartbeatInterval()
    interval.count(10_000, 5.0)
    interval.count(5000, 100.0)
    interval.count(1000, 104.0)
    assert [interval.longest(now) for now in (104.0, 113.9, 114.0)] == [10, 10, 1]
    interval.count(20_000, 115.0)
    assert interval.longest(115.0) == 20
