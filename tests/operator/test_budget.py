"""How failures count."""

from dataclasses import replace

import pytest
from elastic_pytorch_operator.budget import Budget, backoff_seconds
from elastic_pytorch_operator.failures import FailureRecord, Fault
from operator_builders import NOW

BOOM = FailureRecord("w0", 0, 1, "", "ValueError: boom", NOW)
DEAD_POD = replace(BOOM, pod_uid="1")


def failed(budget: Budget, number: int, *, hold: bool = True) -> Budget:
    return budget.after_round(number, BOOM, NOW, hold=hold)


def test_round_counts_once_however_often_it_is_reported() -> None:
    budget = failed(failed(Budget(), 1), 1)
    assert budget.failures == 1
    assert failed(budget, 2).failures == 2


def test_failure_of_an_earlier_round_is_over() -> None:
    assert failed(failed(Budget(), 7), 6).failures == 1


@pytest.mark.parametrize("fault", [Fault.OUTSIDE, Fault.PLACE])
def test_what_is_not_the_jobs_own_fault_is_a_cause_but_counts_nothing(fault: Fault) -> None:
    cause = replace(BOOM, fault=fault)
    budget = Budget().after_round(1, cause, NOW, hold=True)
    assert (budget.failures, budget.last, budget.hold_until) == (0, cause, 0.0)


def test_pod_counts_once_for_as_long_as_it_is_there() -> None:
    budget = Budget().after_pods([DEAD_POD], NOW, hold=True)
    assert budget.failures == 1
    assert budget.after_pods([DEAD_POD], NOW, hold=True) == budget
    assert budget.after_pods([], NOW, hold=True).counted_pods == frozenset()


def test_pods_that_fail_together_count_as_one() -> None:
    assert Budget().after_pods([DEAD_POD, replace(DEAD_POD, pod_uid="2")], NOW, hold=True).failures == 1


def test_dead_pod_counts_once_whatever_fails_in_thousands_of_workers_after_it() -> None:
    budget = Budget().after_pods([DEAD_POD], NOW, hold=False)
    for number in range(1, 20):
        budget = budget.after_round(number, replace(BOOM, fault=Fault.OUTSIDE), NOW, hold=False)
        budget = budget.after_pods([DEAD_POD], NOW, hold=False)
    assert budget.failures == 1


def test_pod_that_died_earlier_does_not_hide_a_new_failure() -> None:
    assert failed(Budget().after_pods([DEAD_POD], NOW, hold=True), 2).failures == 2


def test_progress_starts_the_count_again() -> None:
    budget = failed(Budget(step=90), 1)
    assert budget.after_progress(95, None).failures == 1
    assert budget.after_progress(100, None).failures == 0
    assert budget.after_progress(91, 50).failures == 0


def test_steps_done_again_are_no_progress() -> None:
    assert failed(Budget(step=90, checkpoint_step=50), 1).after_progress(55, 50).failures == 1


def test_only_a_crash_loop_waits() -> None:
    once = failed(Budget(), 1)
    assert failed(once, 2).hold_until == NOW + 1
    assert failed(once, 2, hold=False).hold_until == NOW


def test_steady_round_starts_the_count_again_for_a_script_that_reports_nothing() -> None:
    budget = failed(Budget(), 1)
    assert budget.after_steady_round(60).failures == 1
    assert budget.after_steady_round(301).failures == 0


def test_backoff_doubles_up_to_a_minute() -> None:
    assert [backoff_seconds(n) for n in (0, 1, 2, 3, 4, 20)] == [0, 0, 1, 2, 4, 60]
    assert failed(Budget(failures=2), 1).hold_until == NOW + 2
