"""Traces are drawn from a seed, and leave time to recover."""

from itertools import pairwise

import pytest
from replay.traces import EVENT_SECONDS, LOSS, RECLAIM, TRACES, Trace, compression, draw


def test_real_rates_are_those_of_the_sources() -> None:
    assert {name: (trace.nodes, trace.kind) for name, trace in TRACES.items()} == {"spot": (8, RECLAIM), "research": (64, LOSS)}
    assert TRACES["spot"].interval_seconds == 3600
    assert TRACES["research"].interval_seconds == pytest.approx(15.8 * 3600)


@pytest.mark.parametrize("trace", TRACES.values(), ids=list(TRACES))
@pytest.mark.parametrize("seed", range(20))
def test_events_come_one_after_the_other_with_time_to_recover(trace: Trace, seed: int) -> None:
    seconds = 105.0
    events = draw(trace, seed, seconds)
    assert events == draw(trace, seed, seconds) != draw(trace, seed + 1, seconds)
    assert len(events) == 4
    times = [*(event.at for event in events), seconds]
    assert times[0] > 0
    assert all(later - earlier > 0.6 * EVENT_SECONDS for earlier, later in pairwise(times))


@pytest.mark.parametrize("seconds", [10.0, 60.0, 105.0, 600.0])
def test_compression_is_the_real_interval_in_the_one_of_the_trace(seconds: float) -> None:
    trace = TRACES["spot"]
    events = draw(trace, 1, seconds)
    assert compression(trace, seconds) == pytest.approx(3600 * len(events) / seconds)
