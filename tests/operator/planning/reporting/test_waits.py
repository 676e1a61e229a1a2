import pytest
from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.planning.failures.group_restart import GroupRestart
from elastic_pytorch_operator.planning.nodes.evacuation import Evacuation
from elastic_pytorch_operator.planning.reporting.waits import (
    explain_deferral,
    explain_evacuation,
    explain_growth_wait,
    explain_restart,
    explain_schedule_wait,
)
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import NO_DEFERRAL
from elastic_pytorch_operator.planning.workers.schedule_timeout import ScheduleWait
from elastic_pytorch_operator.spec.failure_rules import find_rule, parse_rules

from tests.operator.builders import NOW, TIME, a_job
from tests.operator.spec.test_failure_rules import on_codes
from tests.situations import situations

RULE = find_rule(parse_rules([on_codes("RestartGroup", 42)]), 42, frozenset())


def test_nothing_to_wait_for_is_not_told() -> None:
    told = (
        explain_deferral(a_job(), NO_DEFERRAL),
        explain_growth_wait(a_job(), ()),
        explain_evacuation(Evacuation()),
    )
    assert told == ("", "", "")


@pytest.mark.parametrize(
    ("newcomers", "ready"), [(["w3"], "w3 is ready"), (["w3", "w4"], "w3, w4 are ready")]
)
def test_growth_that_waits(newcomers: list[str], ready: str) -> None:
    status = {"operatorState": {"lastGrowthTime": "2025-12-31T23:59:20Z"}}
    job = a_job(resizePolicy={"minSecondsBetweenGrowths": 60}, status=status)
    until = (
        "the group may grow at 2026-01-01T00:00:20Z, as resizePolicy.minSecondsBetweenGrowths is 60"
    )
    assert explain_growth_wait(job, newcomers) == f"{ready}; {until}"


def test_workers_that_leave_their_nodes() -> None:
    evacuation = Evacuation(staying={"w0": "leaves node n", "w1": "leaves node m"})
    after = "as soon as its replacement is ready"
    assert explain_evacuation(evacuation) == f"w0 leaves node n, {after}; w1 leaves node m, {after}"


def test_job_without_places() -> None:
    job = a_job(replicas=3, minimum=3, scheduling={"scheduleTimeoutSeconds": 60})
    assert explain_schedule_wait(job, ScheduleWait(1, retry_time=TIME)) == (
        "fewer than 3 workers had a node for 60 s (scheduling.scheduleTimeoutSeconds): "
        "their pods are deleted to make room for "
        f"other jobs, and the next attempt is at {TIME}"
    )


@situations(
    "cause, text",
    {
        "ruled": (
            FailureRecord("w1", 1, 42, "", "boom", NOW, rule=RULE),
            f"{RULE} replaces all workers: rank 1 (w1) failed, exit code 42: boom",
        ),
        "read from the status": (
            FailureRecord("w1", 1, 42, "", "boom", NOW),
            "failurePolicy.rules replaces all workers: rank 1 (w1) failed, exit code 42: boom",
        ),
        "unknown": (None, "failurePolicy.rules replaces all workers: see status.rootCause"),
    },
)
def test_restart_of_the_group(cause: FailureRecord | None, text: str) -> None:
    assert explain_restart(GroupRestart(under_way=True, cause=cause)) == text
