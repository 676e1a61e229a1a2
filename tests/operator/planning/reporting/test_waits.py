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
    explain_wait_end,
)
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import (
    NO_DEFERRAL,
    WaitEnd,
    WaitEndReason,
)
from elastic_pytorch_operator.planning.workers.schedule_timeout import ScheduleWait
from elastic_pytorch_operator.spec.failure_rules import find_rule, parse_rules

from tests.operator.builders import NOW, TIME, a_job
from tests.operator.spec.test_failure_rules import on_codes
from tests.situations import situations

WATCHES = a_job(resizePolicy={"checkpointWaitSeconds": 30, "checkpointPath": "/checkpoints"})
RULE = find_rule(parse_rules([on_codes("RestartGroup", 42)]), 42, frozenset())


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (
            WaitEnd(WaitEndReason.CHECKPOINT, 4.0, "w0"),
            "After 4.0 s: w0 has seen a new checkpoint in /checkpoints",
        ),
        (
            WaitEnd(WaitEndReason.TOO_LONG, 30.0),
            "After 30.0 s without a new checkpoint in /checkpoints",
        ),
        (
            WaitEnd(WaitEndReason.UNWATCHED, 4.0),
            "After 4.0 s: no agent can watch for a checkpoint in /checkpoints",
        ),
        (
            WaitEnd(WaitEndReason.URGENT, 4.0, "w1 was deleted"),
            "After 4.0 s: the change cannot wait, w1 was deleted",
        ),
        (
            WaitEnd(WaitEndReason.MEMBER_FAILED, 4.0, "w1"),
            "After 4.0 s: the workers of w1 have failed",
        ),
        (WaitEnd(WaitEndReason.NO_CHANGE, 4.0), "After 4.0 s: the group no longer needs to change"),
    ],
)
def test_end_of_a_wait_for_a_checkpoint(end: WaitEnd, text: str) -> None:
    assert explain_wait_end(WATCHES, end) == text


def test_nothing_to_wait_for_is_not_told() -> None:
    told = (
        explain_deferral(WATCHES, NO_DEFERRAL),
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
