"""What counts as a measured speed: enough windows of a group that keeps its size, after its warm-up."""

from dataclasses import replace

import pytest
from elastic_pytorch_operator.model.observed import Progress
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.scaling.throughput import (
    MAX_WINDOWS,
    MIN_WINDOWS,
    WARM_UP_SECONDS,
    WARM_UP_STEPS,
    WINDOW_SECONDS,
    WINDOW_STEPS,
    Mark,
    Measurement,
    advance_measurement,
    newest_mark,
)

from tests.operator.builders import NOW, a_round, an_agent

SAMPLES = 8


def measured(
    seconds: float,
    *,
    steps_per_second: float = 4.0,
    known: Measurement | None = None,
    round_: Round | None = None,
    begin: float = 0.0,
    heartbeat_seconds: float = 1.0,
) -> Measurement:
    """A group that trains for some seconds, and reports each second."""
    known, round_ = known or Measurement(), round_ or a_round(0, 1, 2)
    second = begin
    while second <= begin + seconds:
        mark = Mark(int((second - begin) * steps_per_second), second, SAMPLES)
        known = advance_measurement(known, round_, mark, heartbeat_seconds)
        second += 1.0
    return known


LONG_ENOUGH = WARM_UP_SECONDS + MIN_WINDOWS * WINDOW_SECONDS


def test_short_measurement_says_nothing() -> None:
    assert measured(LONG_ENOUGH - 1).throughput is None
    found = measured(LONG_ENOUGH).throughput
    assert found is not None
    assert (found.workers, found.samples_per_second, found.error, found.at) == (3, 4 * SAMPLES, 0, LONG_ENOUGH)


def test_few_steps_say_nothing_however_long_they_take() -> None:
    slow = 0.01
    enough = (WARM_UP_STEPS + MIN_WINDOWS * WINDOW_STEPS) / slow
    assert measured(enough - 2 / slow, steps_per_second=slow).throughput is None
    assert measured(enough + 1 / slow, steps_per_second=slow).throughput is not None


def test_windows_are_long_against_heartbeats() -> None:
    assert len(measured(200, heartbeat_seconds=1.0).rates) == 18
    assert len(measured(200, heartbeat_seconds=5.0).rates) == 3


def test_warm_up_does_not_count() -> None:
    known = Measurement()
    for second in range(21):
        known = advance_measurement(known, a_round(0), Mark(second // 2, float(second), SAMPLES), 1.0)
    for second in range(21, 91):
        known = advance_measurement(known, a_round(0), Mark(10 + 4 * (second - 20), float(second), SAMPLES), 1.0)
    assert set(known.rates) == {4.0 * SAMPLES}


def test_group_of_another_size_is_measured_by_itself() -> None:
    before = measured(LONG_ENOUGH)
    after = advance_measurement(before, a_round(0, 1, number=2), None, 1.0)
    assert after == Measurement(2, 2)


def test_next_group_of_the_same_size_warms_up_and_goes_on() -> None:
    before = measured(LONG_ENOUGH)
    again = a_round(0, 1, 3, number=2)
    after = measured(WARM_UP_SECONDS, known=before, round_=again, begin=500.0)
    assert after.rates == before.rates
    assert len(measured(WARM_UP_SECONDS + WINDOW_SECONDS, known=before, round_=again, begin=500.0).rates) == MIN_WINDOWS + 1


def test_last_windows_count() -> None:
    found = measured(1000)
    assert found.full
    assert len(found.rates) == MAX_WINDOWS


def test_empty_round_is_not_measured() -> None:
    assert advance_measurement(measured(LONG_ENOUGH), a_round(number=2), None, 1.0) == Measurement()
    assert advance_measurement(measured(LONG_ENOUGH), None, None, 1.0) == Measurement()


def test_window_in_which_the_batch_changes_does_not_count() -> None:
    known = measured(LONG_ENOUGH + 5)
    assert known.begin is not None
    other = replace(known, begin=known.begin._replace(samples_per_step=16))
    mark = Mark(10_000, LONG_ENOUGH + 60, SAMPLES)
    assert advance_measurement(other, a_round(0, 1, 2), mark, 1.0).rates == known.rates


REPORTS = Progress(step=7, samples_per_step=SAMPLES)


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        ([an_agent("w0", progress=REPORTS, progressed_at=NOW)], Mark(7, NOW, SAMPLES)),
        ([an_agent("w0", progress=Progress(step=7))], None),
        ([an_agent("w0")], None),
        ([an_agent("w0", round_=0, progress=REPORTS)], None),
        ([an_agent("w0", "stopping", progress=REPORTS)], None),
        ([an_agent("w9", progress=REPORTS)], None),
        (
            [
                an_agent("w0", progress=REPORTS, progressed_at=NOW),
                an_agent("w1", progress=REPORTS, progressed_at=NOW - 0.5),
                an_agent("w2", progress=replace(REPORTS, step=6), progressed_at=NOW - 1),
            ],
            Mark(7, NOW - 0.5, SAMPLES),
        ),
    ],
)
def test_newest_step_of_the_group(agents: list[object], expected: Mark | None) -> None:
    assert newest_mark(a_round(0, 1, 2), agents) == expected  # type: ignore[arg-type]


def test_there_is_no_step_without_a_round() -> None:
    assert newest_mark(None, [an_agent("w0", progress=REPORTS)]) is None
