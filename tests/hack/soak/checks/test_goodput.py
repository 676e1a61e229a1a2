"""The operator's account of a job's time is compared with what was seen of it."""

from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.goodput import Goodput
from soak.checks.goodput import check_goodput, unresolved_seconds, whole_seconds
from soak.checks.training import Expected
from soak.timeline import Hit, StatusSeen, Step

LIBRARY = Expected("job", 1, 2, 1, 401, commits=True)
STATUSES = [
    StatusSeen(0, "job", "", 0),
    StatusSeen(1, "job", "Pending", 0),
    StatusSeen(20, "job", "Running", 2),
    StatusSeen(1000, "job", "Complete", 0),
    StatusSeen(1900, "job", "Complete", 0),
]
# Two groups of a step in two seconds: 100 and 300 steps, a pause of 100 s, and a step that is done again.
STEPS = [Step(20 + 2 * number, "w0", 0, 2, number, 1) for number in range(1, 101)]
STEPS += [Step(120 + 2 * number, "w0", 0, 2, number, 2) for number in range(100, 401)]
OPERATOR = Hit(219, 225, "kill-leader", "kill the leader")


def told(training: int, *, checkpointing: int = 0, other: int = 200) -> Goodput:
    return Goodput(0.0, {"Training": training, "Checkpointing": checkpointing, "Recovering": other})


@pytest.mark.parametrize(
    ("goodput", "rules"),
    [
        pytest.param(told(800), [], id="the same"),
        pytest.param(told(790, checkpointing=10), [], id="checkpoints delay steps that are seen"),
        pytest.param(told(776, other=224), [], id="five seconds are not resolved, and two in a hundred are allowed"),
        pytest.param(told(774, other=226), ["goodput is what was seen"], id="too little"),
        pytest.param(told(826, other=174), ["goodput is what was seen"], id="too much"),
        pytest.param(told(824, other=206), ["no more time is told than there was"], id="more than there was"),
        pytest.param(told(0, other=0), [], id="nothing is told"),
    ],
)
def test_account_of_the_operator(goodput: Goodput, rules: list[str]) -> None:
    assert [violation.rule for violation in check_goodput(LIBRARY, goodput, STEPS, STATUSES, [])] == rules


def test_pause_while_no_operator_may_have_led_is_not_resolved() -> None:
    wrong = told(900, other=100)
    assert list(check_goodput(LIBRARY, wrong, STEPS, STATUSES, [OPERATOR])) == []
    assert unresolved_seconds(STEPS, [OPERATOR]) == 4 + 100 + 2
    settled = replace(OPERATOR, kind="drain")
    [violation] = check_goodput(LIBRARY, wrong, STEPS, STATUSES, [settled])
    assert violation.text == "90.0% of 1000 s is told, 80.0% of 1000.0 s was seen; 5.0 s are not resolved"


@pytest.mark.parametrize(
    ("expected", "steps", "statuses"),
    [
        pytest.param(replace(LIBRARY, commits=False), STEPS, STATUSES, id="a plain script"),
        pytest.param(LIBRARY, [], STATUSES, id="no step was seen"),
        pytest.param(LIBRARY, STEPS, STATUSES[:3], id="the job has not ended"),
        pytest.param(LIBRARY, STEPS, [], id="nothing was seen"),
        pytest.param(LIBRARY, STEPS, [STATUSES[0], replace(STATUSES[3], at=899)], id="the job was short"),
    ],
)
def test_what_cannot_be_compared(expected: Expected, steps: list[Step], statuses: list[StatusSeen]) -> None:
    assert list(check_goodput(expected, told(7), steps, statuses, [])) == []


def test_suspended_time_is_apart() -> None:
    seen = [
        StatusSeen(0, "job", "Running", 2),
        StatusSeen(10, "job", "Suspending", 2),  # trains to its next step
        StatusSeen(13, "job", "Suspending", 0),
        StatusSeen(15, "job", "Suspended", 0),
        StatusSeen(100, "job", "Pending", 0),
        StatusSeen(120, "job", "Complete", 0),
    ]
    assert whole_seconds(seen) == 13 + 20
