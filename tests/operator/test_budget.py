"""How failures count."""

from dataclasses import replace

from elastic_pytorch_operator.budget import Budget, backoff_seconds
from elastic_pytorch_operator.failures import FailureRecord
from operator_builders import NOW


def failure(id_: str, *, symptom: bool = False, in_round: bool = True) -> FailureRecord:
    return FailureRecord(id_, "w0", 0, 1, "", "ValueError: boom", NOW, symptom, in_round)


def test_each_failure_counts_once() -> None:
    budget = Budget().after_failures([failure("a/1")], NOW).after_failures([failure("a/1")], NOW)
    assert budget.failures == 1


def test_failures_of_one_round_count_as_one() -> None:
    assert Budget().after_failures([failure("a/1"), failure("b/1")], NOW).failures == 1
    first = Budget().after_failures([failure("a/1")], NOW)
    assert first.after_failures([failure("a/1"), failure("b/1")], NOW).failures == 1
    assert first.after_failures([failure("a/2")], NOW).failures == 2


def test_worker_killed_from_outside_is_a_cause_but_counts_nothing() -> None:
    killed = replace(failure("a/1"), foreign=True)
    budget = Budget().after_failures([killed], NOW)
    assert (budget.failures, budget.last, budget.hold_until) == (0, killed, 0.0)


def test_symptoms_count_nothing() -> None:
    assert Budget().after_failures([failure("a/1", symptom=True)], NOW).failures == 0


def test_pod_that_died_earlier_does_not_hide_a_new_failure() -> None:
    died = failure("pod/1", in_round=False)
    budget = Budget().after_failures([died], NOW).after_failures([died, failure("a/2")], NOW)
    assert budget.failures == 2


def test_progress_starts_the_count_again() -> None:
    budget = Budget(step=90).after_failures([failure("a/1")], NOW)
    assert budget.after_progress(95, None).failures == 1
    assert budget.after_progress(100, None).failures == 0
    assert budget.after_progress(91, 50).failures == 0


def test_steps_done_again_are_no_progress() -> None:
    budget = Budget(step=90, checkpoint_step=50).after_failures([failure("a/1")], NOW)
    assert budget.after_progress(55, 50).failures == 1


def test_only_a_crash_loop_waits() -> None:
    once = Budget().after_failures([failure("a/1")], NOW, 0.5)
    assert once.after_failures([failure("a/2")], NOW, 2.0).hold_until == NOW + 1
    assert once.after_failures([failure("a/2")], NOW, 60.0).hold_until == NOW


def test_steady_round_starts_the_count_again_for_a_script_that_reports_nothing() -> None:
    budget = Budget().after_failures([failure("a/1")], NOW)
    assert budget.after_steady_round(60).failures == 1
    assert budget.after_steady_round(301).failures == 0


def test_backoff_doubles_up_to_a_minute() -> None:
    assert [backoff_seconds(n) for n in (0, 1, 2, 3, 4, 20)] == [0, 0, 1, 2, 4, 60]
    assert Budget(failures=2).after_failures([failure("a/1")], NOW).hold_until == NOW + 2
