from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.model.observed import AgentView, Progress
from elastic_pytorch_operator.planning.reporting.events import News, record_events
from elastic_pytorch_operator.planning.reporting.failing_saves import (
    explain_failing_saves,
    explain_slow_saves,
    explain_unsaved_steps,
    with_failing_saves,
)

from tests.operator.builders import a_job, a_pod, a_round, a_target, an_agent, condition, observed
from tests.operator.planning.reporting.test_status import SUSPENDED, case, status_of

FULL = "No space left on device (/checkpoints)"


def failing(count: int, worker: str = "w0", state: str = "running", error: str = FULL) -> AgentView:
    return an_agent(worker, state, progress=Progress(step=7, failed_saves=count, save_error=error))


def words(count: int, worker: str = "w0", error: str = FULL) -> str:
    return f"at least {count} saves of a checkpoint in a row have failed in {worker}: {error}"


@pytest.mark.parametrize(
    ("agents", "told"),
    [
        ([], ""),
        ([an_agent("w0")], ""),
        ([failing(2)], ""),
        ([failing(3)], words(3)),
        ([failing(9)], words(3)),
        ([failing(10)], words(10)),
        ([failing(999)], words(300)),
        ([failing(10**9)], words(1000)),
        ([failing(3, state="stopping")], ""),
        ([failing(3, state="failed")], ""),
        (
            [an_agent("w0"), failing(3, "w1"), failing(12, "w2", error="Permission denied (/x)")],
            words(10, "w2", "Permission denied (/x)"),
        ),
    ],
)
def test_three_in_a_row_are_told_and_then_ever_rarer(agents: list[AgentView], told: str) -> None:
    assert explain_failing_saves(agents) == told


def test_a_group_that_is_degraded_already_keeps_its_reason() -> None:
    calm = Condition("Degraded", False, "AtWantedSize", "all 3 wanted workers train")
    small = Condition("Degraded", True, "WorkersMissing", "trains with 2 of 3 workers")
    well, ill = observed([], [an_agent("w0")]), observed([], [failing(3)])
    job = a_job()
    assert (
        with_failing_saves(calm, job, well, a_round(0))
        is with_failing_saves(calm, job, ill, None)
        is calm
    )
    assert with_failing_saves(calm, job, ill, a_round(1)) is calm
    assert with_failing_saves(calm, job, ill, a_round(0)) == Condition(
        "Degraded", True, "CheckpointsFailing", words(3)
    )
    told = Condition("Degraded", True, "WorkersMissing", f"trains with 2 of 3 workers; {words(3)}")
    assert with_failing_saves(small, job, ill, a_round(0)) == told


SLOW = (
    "writing a checkpoint takes longer than terminationGracePeriodSeconds (30): "
    "when all workers stop, as for `suspend`, the steps "
    "since the last one are lost"
)


@pytest.mark.parametrize(("seconds", "told"), [(None, ""), (30.0, ""), (30.1, SLOW)])
def test_a_checkpoint_that_takes_longer_than_pods_have_to_stop_is_told(
    seconds: float | None, told: str
) -> None:
    agents = [an_agent("w0", progress=Progress(step=7, checkpoint_seconds=seconds)), an_agent("w1")]
    assert explain_slow_saves(a_job(), agents) == told
    calm = Condition("Degraded", False, "AtWantedSize", "all 2 wanted workers train")
    found = with_failing_saves(calm, a_job(), observed([], agents), a_round(0, 1))
    assert found == (Condition("Degraded", True, "CheckpointsSlow", SLOW) if told else calm)


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        ({"step": 0}, ""),
        (
            {"step": 7},
            "no checkpoint was reported, and steps 1 to 7 are done again, "
            "unless the script saves them itself",
        ),
        ({"step": 7, "checkpointStep": 7}, ""),
        (
            {"step": 9, "checkpointStep": 7},
            "the last checkpoint is of step 7, and steps 8 to 9 are done again",
        ),
    ],
)
def test_steps_that_a_stopped_job_has_in_no_checkpoint_are_told(
    progress: dict[str, int], told: str
) -> None:
    assert explain_unsaved_steps(progress) == told


def degraded(agents: list[AgentView], *members: int, **job: Any) -> tuple[str, str, str]:
    seen = observed([a_pod(index) for index in range(3)], agents, round=a_round(*members))
    found = condition(status_of(case(seen, job)), "Degraded")
    return found["status"], found["reason"], found["message"]


def test_condition_of_a_group_is_of_its_members_while_it_trains() -> None:
    agents = [failing(3), an_agent("w1"), an_agent("w2")]
    assert degraded(agents, 0, 1, 2) == ("True", "CheckpointsFailing", words(3))
    assert degraded([an_agent(f"w{index}") for index in range(3)], 0, 1, 2)[:2] == (
        "False",
        "AtWantedSize",
    )
    assert degraded(agents, 1, 2)[1] == "WorkersMissing"
    assert "saves of a checkpoint" not in degraded(agents, 1, 2)[2]
    assert degraded(agents, 0, 1, 2, suspend=True)[:2] == ("False", "Suspending")


def suspended(agents: list[AgentView]) -> tuple[str, Any]:
    """Of a job that has done nine steps and saved seven: what Suspended says, and the step."""
    progress = {"summary": "9", "step": 9, "checkpointStep": 7}
    seen = observed([a_pod(index) for index in range(len(agents))], agents, round=a_round())
    status = status_of(case(seen, {**SUSPENDED, "status": {"progress": progress}}))
    found = condition(status, "Suspended")
    return found["message"], status["progress"]["checkpointStep"]


def test_suspended_job_tells_the_steps_that_no_checkpoint_has() -> None:
    unsaved = (
        "spec.suspend is true: nothing runs; the last checkpoint is of step 7, "
        "and steps 8 to 9 are done again"
    )
    assert suspended([]) == (unsaved, 7)
    leaving = an_agent("w0", "leaving", progress=Progress(step=9, checkpoint_step=9))
    assert suspended([leaving]) == ("spec.suspend is true: 1 pod is left", 9), (
        "it writes while it has time"
    )


def test_the_event_of_a_suspension_warns_if_the_checkpoint_takes_too_long() -> None:
    job = a_job(suspend=True)
    for seconds, warning in ((30.0, False), (30.1, True)):
        seen = observed(
            [a_pod(0)],
            [an_agent("w0", progress=Progress(step=7, checkpoint_seconds=seconds))],
            round=a_round(0),
        )
        [event] = record_events(job, a_target(job), seen, News())
        found = (event.reason, event.warning, SLOW in event.note)
        assert found == ("JobSuspended", warning, warning)
