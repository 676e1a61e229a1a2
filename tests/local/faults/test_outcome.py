from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_local.faults.outcome import Outcome, changes, outcome, trains_quietly
from elastic_pytorch_local.faults.steps import Step

SIZE = 3


def steps(*parts: tuple[float, float, int, int, int]) -> list[Step]:
    """The steps of groups: from when until when, from which number, of which workers."""
    counted = [(part, round((part[1] - part[0]) / 0.05)) for part in parts]
    return [
        Step(b + 0.05 * n, "a", first + n, world, group)
        for (b, _, first, world, group), c in counted
        for n in range(c + 1)
    ]


ONE = (0, 1, 0, 3, 1)


@pytest.mark.parametrize(
    ("seen", "at", "cost"),
    [
        (
            steps(ONE, (5, 6, 18, 2, 2), (8, 9, 38, 3, 3)),
            0.99,
            Outcome(4.01, 4.0, 6.0, 7.01, 3 + 1),
        ),
        (steps(ONE, (2, 3, 21, 2, 2), (9, 10, 42, 3, 3)), 0.99, Outcome(1.01, 6.0, 7.0, 8.01, 0)),
        (steps(ONE, (12, 13, 21, 3, 2)), 0.99, Outcome(11.01, 11.0, 11.0, 11.01, 0)),
        # a group trains on for a while after a polite loss
        (
            steps((0, 2, 0, 3, 1), (2.2, 3, 41, 2, 2), (3.3, 4, 58, 3, 3)),
            1.0,
            Outcome(1.2, 0.3, 0.3, 2.3, 0),
        ),
        (steps((0, 5, 0, 3, 1)), 0.99, Outcome(None, 0.05, 0.0, None, 0)),
        (steps(ONE, (5, 6, 18, 2, 2)), 0.99, Outcome(4.01, 4.0, 4.0, None, 3)),
        ([], 0.99, None),
        (steps(ONE), 1.5, None),
        (steps((2, 3, 0, 3, 1)), 0.99, None),
    ],
)
def test_cost_of_a_fault_until_the_group_is_whole_again(
    seen: list[Step], at: float, cost: Outcome | None
) -> None:
    assert outcome(seen, at, SIZE) == cost


def test_a_group_that_has_gone_tells_of_no_further_change() -> None:
    late = Step(5.02, "b", 22, 3, 1)
    seen = sorted([*steps(ONE, (5, 6, 18, 2, 2), (8, 9, 38, 3, 3)), late], key=lambda step: step.at)
    found = changes(seen, 0.99)
    assert [(each.last.number, each.first.number, each.repeated) for each in found] == [
        (20, 18, 3),
        (38, 38, 1),
    ]
    assert [each.pause_seconds for each in found] == pytest.approx([4.0, 2.0])
    assert changes(seen, 6.5) == found[1:]


def test_round_and_failures_are_those_of_the_status() -> None:
    before = view_job({"status": {"round": 3, "failures": 1}})
    after = view_job({"status": {"round": 5, "failures": 2}})
    plain = outcome(steps(ONE, (5, 6, 18, 3, 2)), 0.99, SIZE)
    assert plain is not None
    with_status = outcome(steps(ONE, (5, 6, 18, 3, 2)), 0.99, SIZE, before, after)
    assert with_status == replace(plain, round=5, rounds=2, failures=1)


def test_group_trains_quietly_once_its_last_steps_are_of_its_size_and_no_other_group() -> None:
    seen = steps(ONE, (5, 6, 18, 3, 2))
    assert trains_quietly(seen, 3, 21)
    assert not any(trains_quietly(seen, *asked) for asked in ((3, 22), (2, 1), (3, 99)))
