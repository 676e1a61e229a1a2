from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import DeletePod, PatchStatus, RecordEvent
from elastic_pytorch_operator.model.observed import AgentState

from tests.operator.builders import actions_of, fields_of
from tests.operator.simulation import Simulation, running
from tests.operator.spec.test_failure_rules import DISRUPTED, on_codes, on_condition


def with_rules(*rules: dict[str, Any], **policy: Any) -> Simulation:
    return running(failurePolicy={"maxFailures": 0, **policy, "rules": list(rules)})


def fail(simulation: Simulation, exit_code: int) -> str:
    """Fails the process of rank 1 with an exit code, and with it the others; returns its worker."""
    first, worker, *others = simulation.members
    simulation.fail_worker(worker, "ValueError: boom", exit_code=exit_code, rank=1)
    for name in (first, *others):
        simulation.fail_worker(name)
    return worker


def evict(simulation: Simulation, name: str) -> None:
    """As the eviction API does: the condition, then the deletion."""
    simulation.pods[name] = replace(simulation.pods[name], conditions=frozenset({DISRUPTED}))
    simulation.delete_pod(name)
    simulation.reconcile()


def failed(simulation: Simulation) -> tuple[str, str]:
    found = simulation.condition("Failed")
    return (found["reason"], found["message"]) if found["status"] == "True" else ("", "")


def told(simulation: Simulation, reason: str) -> list[str]:
    return [a.note for a in actions_of(simulation.last, RecordEvent) if a.reason == reason]


# FailJob


def test_exit_code_fails_the_job_at_once_and_names_the_rule_and_the_cause() -> None:
    simulation = with_rules(on_codes("Ignore", 1), on_codes("FailJob", 42), maxFailures=9)
    worker = fail(simulation, 42)
    simulation.settle(0.5)
    reason, message = failed(simulation)
    assert reason == "FailurePolicyRule"
    assert message == (
        f"failurePolicy.rules[1] (onExitCodes In 42) fails the job: rank 1 ({worker}) failed, "
        "exit code 42: ValueError: boom"
    )
    cause = simulation.status["rootCause"]
    assert (cause["worker"], cause["exitCode"], cause["rank"]) == (worker, 42, 1)
    assert len(simulation.declared) == 1


def test_job_fails_although_the_first_try_to_write_so_fails() -> None:
    simulation = with_rules(on_codes("FailJob", 42), maxFailures=9)
    fail(simulation, 42)
    simulation.failing_writes = 5
    simulation.settle(5)
    assert failed(simulation)[0] == "FailurePolicyRule"
    assert len(simulation.declared) == 1


def test_eviction_fails_the_job_if_a_rule_says_so_and_a_deletion_does_not() -> None:
    simulation = with_rules(on_condition("FailJob"))
    simulation.delete_pod(simulation.members[0])
    simulation.settle(10)
    assert simulation.status["worldSize"] == 3
    worker = simulation.members[0]
    evict(simulation, worker)
    assert failed(simulation) == (
        "FailurePolicyRule",
        "failurePolicy.rules[0] (onPodConditions DisruptionTarget=True) fails the job: "
        f"{worker} is being deleted (DisruptionTarget=True)",
    )


# Ignore


def test_ignored_failure_never_counts() -> None:
    simulation = with_rules(on_codes("Ignore", 42), backoffLimit=0)
    fail(simulation, 42)
    simulation.reconcile()
    [note] = told(simulation, "FailureIgnored")
    assert note.startswith("failurePolicy.rules[0] (onExitCodes In 42) ignores a failure: rank 1 ")
    simulation.settle(20)
    status = simulation.status
    counts = fields_of(status, "worldSize", "failures", "totalFailures")
    assert (status["state"], *counts) == ("Running", 3, 0, 0)
    assert status["rootCause"]["exitCode"] == 42
    fail(simulation, 43)
    simulation.settle(20)
    assert failed(simulation)[0] == "TooManyFailures"


@pytest.mark.simulation
def test_failure_that_is_ignored_for_ever_is_tried_at_a_growing_pace() -> None:
    simulation = with_rules(on_codes("Ignore", 42))
    began = simulation.now
    while simulation.now < began + 600:
        fail(simulation, 42)
        simulation.settle(0.5)
    assert 10 <= len(simulation.declared) <= 20
    running_ = simulation.condition("Running")
    assert running_["reason"] == "BackingOff"
    assert (
        "a failure that failurePolicy.rules[0] (onExitCodes In 42) does not count; rank 1 "
        in running_["message"]
    )
    simulation.restart_operator()
    assert simulation.memory.budget.backoff_until > simulation.now, (
        "a new leader begins with a pause"
    )
    simulation.settle(120)
    assert simulation.status["worldSize"] == 3


def test_ignored_eviction_is_excused_from_on_pod_loss() -> None:
    simulation = with_rules(on_condition("Ignore"), onPodLoss="FailJob")
    evict(simulation, simulation.members[0])
    simulation.settle(10)
    assert fields_of(simulation.status, "state", "worldSize") == ("Running", 3)
    simulation.kill_pod(simulation.members[0])
    simulation.settle(10)
    assert failed(simulation)[0] == "PodLost"


# RestartGroup


def test_all_pods_are_replaced_once() -> None:
    simulation = with_rules(on_codes("RestartGroup", 42))
    before = set(simulation.pods)
    fail(simulation, 42)
    simulation.reconcile()
    assert simulation.status["groupRestarts"] == 1
    assert not actions_of(simulation.last, DeletePod), "only once it is stored"
    assert len(simulation.declared) == 1
    simulation.reconcile()
    assert simulation.declared[-1].size == 0
    [note] = told(simulation, "GroupRestarted")
    assert "failurePolicy.rules[0] (onExitCodes In 42) replaces all workers: rank 1 " in note
    waits = simulation.condition("Running")
    assert (waits["status"], waits["reason"]) == ("False", "GroupRestarted")
    simulation.settle(20)
    assert before.isdisjoint(simulation.pods)
    status = simulation.status
    assert fields_of(status, "worldSize", "failures", "groupRestarts") == (3, 0, 1)
    assert simulation.made == 6
    assert simulation.reconcile().actions == ()


@pytest.mark.parametrize("plans", range(6))
def test_restart_of_the_operator_neither_doubles_nor_loses_a_restart_of_the_group(
    plans: int,
) -> None:
    simulation = with_rules(on_codes("RestartGroup", 42))
    before = set(simulation.pods)
    fail(simulation, 42)
    for _ in range(plans):
        simulation.reconcile()
    simulation.restart_operator()
    simulation.settle(40)
    assert before.isdisjoint(simulation.pods)
    assert fields_of(simulation.status, "worldSize", "groupRestarts") == (3, 1)
    assert simulation.made == 6


@pytest.mark.parametrize("failing_writes", range(1, 12))
def test_writes_that_fail_neither_double_nor_lose_a_restart_of_the_group(
    failing_writes: int,
) -> None:
    simulation = with_rules(on_codes("RestartGroup", 42))
    before = set(simulation.pods)
    fail(simulation, 42)
    simulation.failing_writes = failing_writes
    simulation.settle(40)
    assert before.isdisjoint(simulation.pods)
    assert fields_of(simulation.status, "worldSize", "groupRestarts") == (3, 1)


def test_container_that_ended_while_no_operator_led_restarts_the_group_once() -> None:
    simulation = with_rules(on_codes("RestartGroup", 42))
    lost, *others = simulation.members
    simulation.end_pod(lost, exit_code=42)
    simulation.restart_operator()
    simulation.settle(40)
    assert simulation.status["groupRestarts"] == 1
    assert not set(others) & set(simulation.pods)
    assert lost in simulation.pods, "it is kept for its log"
    simulation.restart_operator()
    simulation.settle(40)
    assert (simulation.status["groupRestarts"], simulation.made) == (1, 6)


def test_pods_of_a_group_that_waits_for_its_pause_are_made_when_it_is_over() -> None:
    simulation = with_rules(on_codes("RestartGroup", 42))
    for _ in range(4):
        simulation.settle(20)
        fail(simulation, 42)
        simulation.reconcile()
    while [a for a in simulation.reconcile().actions if isinstance(a, PatchStatus | DeletePod)]:
        pass
    assert simulation.reconcile().recheck_at == simulation.memory.budget.backoff_until


# backoffLimit


def test_backoff_limit_bounds_the_failures_of_a_jobs_whole_life() -> None:
    simulation = running(failurePolicy={"maxFailures": 1, "backoffLimit": 3})
    for count in (1, 2, 3):
        worker = fail(simulation, 1)
        simulation.settle(10)
        assert fields_of(simulation.status, "totalFailures", "state") == (count, "Running")
        simulation.make_progress(100 * count)
        simulation.settle(1)
        assert simulation.status["failures"] == 0
        simulation.restart_operator()
        simulation.settle(10)
    worker = fail(simulation, 1)
    simulation.settle(1)
    reason, message = failed(simulation)
    assert reason == "BackoffLimitExceeded"
    assert message == (
        "4 failures since the job began, failurePolicy.backoffLimit allows 3; the last: "
        f"rank 1 ({worker}) failed, exit code 1: ValueError: boom"
    )


# What is known late: an agent may report SIGTERM before the operator sees the deletion, or the
# kubelet's last word.


def tell_to_stop(simulation: Simulation) -> str:
    """The agent of a member reports SIGTERM, and the group does without it."""
    worker = simulation.members[0]
    simulation.agents[worker] = replace(simulation.agents[worker], state=AgentState.LEAVING)
    simulation.reconcile()
    assert worker not in simulation.members
    simulation.reconcile()
    return worker


def evict_later(simulation: Simulation) -> None:
    evict(simulation, tell_to_stop(simulation))


def end_by_kubelet(simulation: Simulation) -> None:
    """As by node pressure or a node's shutdown: the condition comes with the end."""
    worker = tell_to_stop(simulation)
    simulation.end_pod(worker, exit_code=143, reason="Terminated")
    simulation.pods[worker] = replace(
        simulation.pods[worker], conditions=frozenset({DISRUPTED}), disrupted=True
    )
    simulation.reconcile()


@pytest.mark.parametrize("happens", [evict_later, end_by_kubelet])
def test_condition_that_comes_late_is_seen(happens: Callable[[Simulation], None]) -> None:
    fails = with_rules(on_condition("FailJob"))
    happens(fails)
    assert failed(fails)[0] == "FailurePolicyRule"
    counts = with_rules(on_condition("Count"), maxFailures=9)
    happens(counts)
    counts.settle(10)
    assert counts.job.status["failures"] == 1
    restarts = with_rules(on_condition("RestartGroup"))
    happens(restarts)
    restarts.settle(30)
    assert fields_of(restarts.job.status, "groupRestarts", "worldSize") == (1, 3)


@pytest.mark.parametrize("happens", [evict_later, end_by_kubelet])
def test_condition_that_comes_late_still_excuses_from_on_pod_loss(
    happens: Callable[[Simulation], None],
) -> None:
    simulation = with_rules(on_condition("Ignore"), onPodLoss="FailJob")
    happens(simulation)
    simulation.settle(10)
    assert fields_of(simulation.status, "state", "worldSize") == ("Running", 3)


@pytest.mark.parametrize("rules", [[], [on_condition("Ignore")]])
def test_member_that_goes_without_an_excuse_fails_a_job_on_pod_loss(
    rules: list[dict[str, Any]],
) -> None:
    simulation = with_rules(*rules, onPodLoss="FailJob")
    worker = simulation.members[0]
    simulation.agents[worker] = replace(simulation.agents[worker], state=AgentState.LEAVING)
    simulation.reconcile()
    assert failed(simulation)[0] == ("" if rules else "PodLost")
    simulation.delete_pod(worker)
    simulation.reconcile()
    assert failed(simulation)[0] == "PodLost"
