from dataclasses import replace

import pytest
from elastic_pytorch_operator.model.failure import FailureRecord, Fault
from elastic_pytorch_operator.planning.failures.budget import Budget, backoff_seconds
from elastic_pytorch_operator.spec.failure_rules import FailureRule, parse_rules

from tests.operator.builders import NOW
from tests.operator.spec.test_failure_rules import on_codes, on_condition
from tests.situations import situations

BOOM = FailureRecord("w0", 0, 1, "", "ValueError: boom", NOW)
DEAD_POD = replace(BOOM, pod_uid="1")


def failed(budget: Budget, number: int, *, back_off: bool = True) -> Budget:
    return budget.after_round(number, BOOM, NOW, back_off=back_off)


def test_round_counts_once_however_often_it_is_reported() -> None:
    budget = failed(failed(Budget(), 1), 1)
    assert budget.failures == 1
    assert failed(budget, 2).failures == 2


def test_failure_of_an_earlier_round_is_over() -> None:
    assert failed(failed(Budget(), 7), 6).failures == 1


def test_pod_counts_once_for_as_long_as_it_is_there() -> None:
    budget = Budget().after_pods([DEAD_POD], ["1"], NOW, back_off=True)
    assert budget.failures == 1
    assert budget.after_pods([DEAD_POD], ["1"], NOW, back_off=True) == budget
    assert budget.after_pods([], [], NOW, back_off=True).counted_pods == frozenset()


def test_pods_that_fail_together_count_as_one() -> None:
    assert (
        Budget()
        .after_pods([DEAD_POD, replace(DEAD_POD, pod_uid="2")], ["1", "2"], NOW, back_off=True)
        .failures
        == 1
    )


@pytest.mark.parametrize(
    ("pods", "failures", "last"),
    [
        (
            [replace(DEAD_POD, round=3), replace(DEAD_POD, pod_uid="2", worker="w1", round=3)],
            1,
            "w0",
        ),
        (
            [replace(DEAD_POD, round=3), replace(DEAD_POD, pod_uid="2", worker="w1", round=4)],
            2,
            "w1",
        ),
        # In no round: each failed to join.
        ([DEAD_POD, replace(DEAD_POD, pod_uid="2", worker="w1")], 2, "w1"),
    ],
)
def test_pods_of_one_round_count_once_whenever_they_end(
    pods: list[FailureRecord], failures: int, last: str
) -> None:
    budget = Budget()
    for number, _ in enumerate(pods, start=1):
        budget = budget.after_pods(pods[:number], ["1", "2"], NOW, back_off=False)
    assert (budget.failures, budget.last and budget.last.worker) == (failures, last)


def test_pod_and_the_round_that_it_failed_in_count_once() -> None:
    pod = replace(DEAD_POD, round=3)
    assert failed(Budget(), 3).after_pods([pod], ["1"], NOW, back_off=True).failures == 1
    assert failed(Budget().after_pods([pod], ["1"], NOW, back_off=True), 3).failures == 1
    fatal = replace(pod, rule=parse_rules([on_codes("FailJob", 1)])[0])
    assert failed(Budget(), 3).after_pods([fatal], ["1"], NOW, back_off=True).fatal == fatal, (
        "but its rule holds"
    )


def test_pod_that_died_earlier_does_not_hide_a_new_failure() -> None:
    assert failed(Budget().after_pods([DEAD_POD], ["1"], NOW, back_off=True), 2).failures == 2


def test_progress_starts_the_count_again() -> None:
    budget = failed(Budget(step=90), 1)
    assert budget.after_progress(99, 60).failures == 1
    assert budget.after_progress(100, 60).failures == 0
    assert budget.after_progress(91, 301) == Budget(
        total=1, step=91, counted_round=1, last=BOOM, backoff_until=budget.backoff_until
    )


def test_steps_done_again_are_no_progress() -> None:
    for seconds in (60, 301):
        assert failed(Budget(step=90), 1).after_progress(90, seconds).failures == 1


def test_only_a_crash_loop_waits() -> None:
    once = failed(Budget(), 1)
    assert failed(once, 2).backoff_until == NOW + 1
    assert failed(once, 2, back_off=False).backoff_until == NOW


def test_steady_round_starts_the_count_again_for_a_script_that_reports_nothing() -> None:
    budget = failed(Budget(), 1)
    assert budget.after_steady_round(60).failures == 1
    assert budget.after_steady_round(301).failures == 0


def test_backoff_doubles_up_to_a_minute() -> None:
    assert [backoff_seconds(n) for n in (0, 1, 2, 3, 4, 20, 2000)] == [0, 0, 1, 2, 4, 60, 60]
    assert failed(Budget(in_a_row=2), 1).backoff_until == NOW + 2


RULES = parse_rules(
    [
        on_codes("Count", 1),
        on_codes("Ignore", 2),
        on_codes("FailJob", 3),
        on_codes("RestartGroup", 4),
        on_condition("Ignore"),
    ]
)
COUNT, IGNORE, FAIL_JOB, RESTART, IGNORE_LOST = RULES


@pytest.mark.parametrize(
    ("cause", "failures", "total", "in_a_row", "pause"),
    [
        (BOOM, 3, 6, 4, 4),
        (replace(BOOM, rule=COUNT), 3, 6, 4, 4),
        (replace(BOOM, rule=COUNT, fault=Fault.OUTSIDE), 3, 6, 4, 4),
        (replace(BOOM, rule=IGNORE), 2, 5, 4, 4),
        (replace(BOOM, rule=IGNORE, fault=Fault.OUTSIDE), 2, 5, 3, 0),
        (replace(BOOM, rule=RESTART), 2, 5, 4, 4),
        (replace(BOOM, rule=FAIL_JOB), 2, 5, 3, 0),
        (replace(BOOM, fault=Fault.OUTSIDE), 2, 5, 3, 0),
        (replace(BOOM, fault=Fault.PLACE), 2, 5, 3, 0),
    ],
)
def test_cost_of_a_failure_in_a_crash_loop(
    cause: FailureRecord, failures: int, total: int, in_a_row: int, pause: float
) -> None:
    budget = Budget(failures=2, total=5, in_a_row=3).after_round(1, cause, NOW, back_off=True)
    found = (budget.failures, budget.total, budget.in_a_row, budget.last)
    assert found == (failures, total, in_a_row, cause)
    assert max(0.0, budget.backoff_until - NOW) == pause
    assert budget.fatal == (cause if cause.rule is FAIL_JOB else None)


@pytest.mark.parametrize("rule", [IGNORE, RESTART])
def test_failures_that_do_not_count_wait_even_if_their_rounds_last(rule: FailureRule) -> None:
    budget = Budget()
    for number in (1, 2, 3):
        budget = budget.after_round(
            number, replace(BOOM, rule=rule, group_restarts=number), NOW, back_off=False
        )
    assert (budget.failures, budget.backoff_until) == (0, NOW + 2)
    assert (
        budget.after_progress(10, 60)
        .after_round(4, replace(BOOM, rule=rule, group_restarts=4), NOW, back_off=False)
        .in_a_row
        == 1
    )


def test_lost_pod_that_is_ignored_changes_nothing() -> None:
    lost = replace(DEAD_POD, rule=IGNORE_LOST, fault=Fault.PLACE)
    budget = Budget(in_a_row=3).after_pods([lost], ["1"], NOW, back_off=True)
    assert budget == Budget(in_a_row=3, counted_pods=frozenset({"1"}))


def test_gravest_of_the_pods_that_fail_together_decides() -> None:
    ignored, restarts = replace(DEAD_POD, rule=IGNORE), replace(DEAD_POD, rule=RESTART, pod_uid="2")
    fatal, counted = replace(DEAD_POD, rule=FAIL_JOB, pod_uid="3"), replace(DEAD_POD, pod_uid="4")
    there = ["1", "2", "3", "4"]
    assert Budget().after_pods([ignored, counted], there, NOW, back_off=True).failures == 1
    both = Budget().after_pods([ignored, restarts, counted], there, NOW, back_off=True)
    assert (both.failures, both.group_restarts) == (0, 1)
    assert (
        Budget().after_pods([ignored, restarts, counted, fatal], there, NOW, back_off=True).fatal
        == fatal
    )


def test_pod_that_was_lost_and_then_ends_counts_once() -> None:
    lost = replace(DEAD_POD, rule=COUNT, exit_code=None, fault=Fault.PLACE)
    budget = (
        Budget()
        .after_pods([lost], ["1"], NOW, back_off=False)
        .after_pods([], ["1"], NOW, back_off=False)
    )
    assert budget.after_pods([DEAD_POD], ["1"], NOW, back_off=False).failures == 1


def test_group_is_restarted_once_for_all_failures_of_its_pods() -> None:
    budget = Budget().after_round(1, replace(BOOM, rule=RESTART), NOW, back_off=True)
    assert budget.group_restarts == 1
    later = budget.after_pods([replace(DEAD_POD, rule=RESTART)], ["1"], NOW, back_off=True)
    later = later.after_pods([replace(DEAD_POD, pod_uid="2")], ["1", "2"], NOW, back_off=True)
    assert replace(later, counted_pods=frozenset()) == budget, "of pods that are being replaced"
    again = later.after_round(3, replace(BOOM, rule=RESTART, group_restarts=1), NOW, back_off=True)
    assert again.group_restarts == 2
    assert (
        again.after_round(4, replace(BOOM, rule=FAIL_JOB), NOW, back_off=True).fatal is not None
    ), "whenever it is found"


def test_total_is_not_forgiven_by_progress() -> None:
    budget = failed(failed(Budget(), 1), 2).after_progress(100, 60).after_steady_round(1000)
    assert (budget.failures, budget.total) == (0, 2)


KILLED = replace(DEAD_POD, fault=Fault.OUTSIDE, end="0 Evicted 137")


def ended(budget: Budget, *records: FailureRecord) -> Budget:
    """Pods end, one after the other, and are replaced."""
    for number, record in enumerate(records):
        uid = f"{record.worker} {record.round} {number}"
        budget = budget.after_pods([replace(record, pod_uid=uid)], [uid], NOW, back_off=False)
    return budget


@situations(
    "ends, failures, in_a_row",
    {
        "once": ([KILLED], 0, 0),
        "twice": ([KILLED, KILLED], 1, 1),
        "thrice": ([KILLED, KILLED, KILLED], 2, 2),
        "another worker": ([KILLED, replace(KILLED, end="1 Evicted 137")], 0, 0),
        "one of two again": ([KILLED, replace(KILLED, end="1 Evicted 137"), KILLED], 1, 1),
        "in another way": ([KILLED, replace(KILLED, end="0 Error 137")], 0, 0),
        "in two rounds": ([replace(KILLED, round=3), replace(KILLED, round=4)], 1, 1),
        "for its node": ([replace(KILLED, fault=Fault.PLACE, end="")] * 3, 0, 0),
    },
)
def test_end_that_repeats_is_a_failure(
    ends: list[FailureRecord], failures: int, in_a_row: int
) -> None:
    budget = ended(Budget(), *ends)
    assert (budget.failures, budget.total, budget.in_a_row) == (failures, failures, in_a_row)
    assert budget.backoff_until == (NOW + backoff_seconds(in_a_row) if in_a_row else 0.0)


def test_end_that_does_not_count_is_told_as_the_cause() -> None:
    assert ended(Budget(), KILLED).last == replace(KILLED, pod_uid="w0 0 0")


@pytest.mark.parametrize("steps", [True, False])
def test_progress_forgives_an_end(steps: bool) -> None:
    budget = ended(Budget(), KILLED)
    budget = budget.after_progress(100, 60) if steps else budget.after_steady_round(1000.0)
    assert ended(budget, KILLED).failures == 0


def test_end_from_outside_does_not_hide_a_failure_in_its_round() -> None:
    budget = ended(Budget(), replace(KILLED, round=3))
    assert budget.after_round(3, BOOM, NOW, back_off=False).failures == 1
