from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_local.faults.steps import Step
from measure.outcome import Outcome, outcome, trains_quietly

from tests.local.faults.test_steps import ONE, steps_of

SIZE = 3


@pytest.mark.parametrize(
    ("seen", "at", "cost"),
    [
        (
            steps_of(ONE, (5, 6, 18, 2, 2), (8, 9, 38, 3, 3)),
            0.99,
            Outcome(4.01, 4.0, 6.0, 7.01, 3 + 1),
        ),
        (
            steps_of(ONE, (2, 3, 21, 2, 2), (9, 10, 42, 3, 3)),
            0.99,
            Outcome(1.01, 6.0, 7.0, 8.01, 0),
        ),
        (steps_of(ONE, (12, 13, 21, 3, 2)), 0.99, Outcome(11.01, 11.0, 11.0, 11.01, 0)),
        # a group trains on for a while after a polite loss
        (
            steps_of((0, 2, 0, 3, 1), (2.2, 3, 41, 2, 2), (3.3, 4, 58, 3, 3)),
            1.0,
            Outcome(1.2, 0.3, 0.3, 2.3, 0),
        ),
        (steps_of((0, 5, 0, 3, 1)), 0.99, Outcome(None, 0.05, 0.0, None, 0)),
        (steps_of(ONE, (5, 6, 18, 2, 2)), 0.99, Outcome(4.01, 4.0, 4.0, None, 3)),
        ([], 0.99, None),
        (steps_of(ONE), 1.5, None),
        (steps_of((2, 3, 0, 3, 1)), 0.99, None),
    ],
)
def test_cost_of_a_fault_until_the_group_is_whole_again(
    seen: list[Step], at: float, cost: Outcome | None
) -> None:
    assert outcome(seen, at, SIZE) == cost


def test_rounds_and_failures_are_those_of_the_status() -> None:
    before = view_job({"status": {"round": 3, "failures": 1}})
    after = view_job({"status": {"round": 5, "failures": 2}})
    plain = outcome(steps_of(ONE, (5, 6, 18, 3, 2)), 0.99, SIZE)
    assert plain is not None
    with_status = outcome(steps_of(ONE, (5, 6, 18, 3, 2)), 0.99, SIZE, before, after)
    assert with_status == replace(plain, rounds=2, failures=1)


def test_group_trains_quietly_once_its_last_steps_are_of_its_size_and_no_other_group() -> None:
    seen = steps_of(ONE, (5, 6, 18, 3, 2))
    assert [trains_quietly(seen, *asked) for asked in ((3, 21), (3, 22), (2, 1), (3, 99))] == [
        True,
        False,
        False,
        False,
    ]
