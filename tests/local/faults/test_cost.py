import pytest
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_local.faults.cost import (
    ChangeCost,
    cost_table,
    describe_cost,
    repeated_on_purpose,
    step_seconds_before,
    told_cost,
)
from elastic_pytorch_local.faults.steps import Change, Step

REPORTED = HistoryEntry(round=2, before=3, workers=2, seconds=0.4, steps_lost=0)
UNREPORTED = HistoryEntry(round=2, before=3, workers=2, seconds=0.4)
AGAIN = Change(Step(10.0, "a", 110, 3, 1), Step(14.0, "b", 100, 2, 2))
# Every tenth step is printed.
ONWARD = Change(Step(10.0, "a", 110, 3, 1), Step(14.0, "b", 120, 2, 2))


@pytest.mark.parametrize(
    ("status", "log", "cost"),
    [
        (REPORTED, AGAIN, ChangeCost("e", 3, 2, 0.4, 0)),
        (REPORTED, None, ChangeCost("e", 3, 2, 0.4, 0)),
        (UNREPORTED, AGAIN, ChangeCost("e", 3, 2, 4.0, 11)),
        (None, ONWARD, ChangeCost("e", 3, 2, 3.0, 0)),
        (UNREPORTED, None, ChangeCost("e", 3, 2, None, None)),
    ],
)
def test_cost_of_a_change(
    status: HistoryEntry | None, log: Change | None, cost: ChangeCost
) -> None:
    assert told_cost("e", planned=False, status=status, log=log, step_seconds=0.1) == cost


def test_pace_is_that_of_the_group_before() -> None:
    steps = [
        Step(1.0, "a", 1, 3, 1),
        Step(2.0, "a", 11, 3, 1),
        Step(9.0, "b", 5, 2, 2),
        Step(10.0, "b", 6, 2, 2),
    ]
    change = Change(steps[1], steps[2])
    assert step_seconds_before(steps, change) == pytest.approx(0.1)
    assert step_seconds_before(steps[1:], change) == step_seconds_before(steps, None) == 0.0


KEPT = ChangeCost("its replacement joins", 2, 3, 0.42, 0, planned=True, ready_seconds=12.3)
LOST = ChangeCost("a pod is lost", 3, 2, 2.0, 19)
AGAIN_ON_PURPOSE = ChangeCost("it grows", 3, 4, 1.0, 1, planned=True)
UNKNOWN = ChangeCost("it shrinks", 4, 3, None, None, planned=True)


def test_words_are_those_of_the_page() -> None:
    told = (
        "its replacement joins, 2 -> 3 workers: training stood still 0.4 s, 0 steps repeated; "
        "the replacement was ready after 12 s"
    )
    assert describe_cost(KEPT) == told
    assert (
        describe_cost(AGAIN_ON_PURPOSE)
        == "it grows, 3 -> 4 workers: training stood still 1.0 s, 1 step repeated"
    )
    assert "a time that is not known, an unknown number of steps repeated" in describe_cost(UNKNOWN)


def test_table_ends_with_whether_a_step_was_repeated_on_purpose() -> None:
    lines = cost_table([LOST, KEPT]).splitlines()
    assert " ".join(lines[0].split()) == "EVENT WORKERS STOOD STILL STEPS REPEATED READY AFTER"
    assert " ".join(lines[2].split()) == "its replacement joins 2 -> 3 0.4 s 0 12 s"
    assert lines[3] == "No step was repeated on purpose."
    assert (
        cost_table([AGAIN_ON_PURPOSE, UNKNOWN])
        .splitlines()[-1]
        .startswith("1 step was repeated on purpose")
    )
    assert "elastic_pytorch.report" in cost_table([UNKNOWN])
    assert [repeated_on_purpose(costs) for costs in ([LOST, KEPT], [AGAIN_ON_PURPOSE])] == [0, 1]
