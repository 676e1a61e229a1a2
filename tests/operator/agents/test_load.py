import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from elastic_pytorch_operator.agents.load import (
    HEARTBEATS_PER_SECOND,
    LATE_SECONDS,
    TICK_SECONDS,
    Hearing,
    HeartbeatInterval,
    delay_of_change,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def watching(hearing: Hearing) -> AsyncIterator[None]:
    task = asyncio.create_task(hearing.watch())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_loop_that_comes_late_hears_nothing_until_it_has_looked(clock: Clock) -> None:
    hearing = Hearing(clock)
    async with watching(hearing):
        clock.now += LATE_SECONDS
        assert hearing.on_time_since(clock.now) == -math.inf, "a little late is in time"
        clock.now += 3.0
        assert hearing.on_time_since(clock.now) == clock.now, (
            "a plan that comes before the look knows it, too"
        )
        looked_at = clock.now
        await asyncio.sleep(2 * TICK_SECONDS)
        clock.now += LATE_SECONDS
        assert hearing.on_time_since(clock.now) == looked_at


async def test_loop_that_is_not_watched_is_not_late(clock: Clock) -> None:
    hearing = Hearing(clock)
    async with watching(hearing):
        pass
    clock.now += 60.0
    assert hearing.on_time_since(clock.now) == -math.inf


def test_connection_that_waits_long_to_be_let_in_is_not_heard(clock: Clock) -> None:
    hearing = Hearing(clock)
    hearing.waiting["a"] = clock.now
    clock.now += LATE_SECONDS
    assert hearing.lets_in_since(clock.now) == -math.inf
    hearing.waiting["b"] = clock.now
    clock.now += 1.0
    assert hearing.lets_in_since(clock.now) == clock.now
    crowded_at = clock.now
    del hearing.waiting["a"], hearing.waiting["b"]
    clock.now += 1.0
    assert hearing.lets_in_since(clock.now) == crowded_at
    assert hearing.on_time_since(clock.now) == -math.inf, (
        "those that were let in are heard meanwhile"
    )


def test_agent_that_was_told_to_come_again_is_not_heard(clock: Clock) -> None:
    hearing = Hearing(clock)
    hearing.turn_away()
    assert hearing.lets_in_since(clock.now + 1) == clock.now


@pytest.mark.parametrize(
    ("agents", "seconds"), [(0, 1.0), (1000, 1.0), (2000, 2.0), (10_000, 10.0)]
)
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


@pytest.mark.parametrize(
    ("agents", "least", "most"),
    [(1, 0.0, 0.001), (10, 0.0, 0.001), (2000, 0.02, 0.1), (4000, 0.05, 0.2)],
)
def test_change_waits_longer_in_a_larger_job(agents: int, least: float, most: float) -> None:
    assert least <= delay_of_change(agents) <= most
