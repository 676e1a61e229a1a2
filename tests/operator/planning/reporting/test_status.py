"""State, counts and conditions of a job: one row a situation. `test_status_fields.py` has the other fields of the status."""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.group_restart import GroupRestart
from elastic_pytorch_operator.planning.reporting.status import (
    Findings,
    describe_job,
)
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import Deferral
from elastic_pytorch_operator.planning.workers.liveness import assess_workers

from tests.operator.builders import (
    NOW,
    TIME,
    a_job,
    a_pending_pod,
    a_pod,
    a_round,
    a_target,
    an_agent,
    observed,
)

BOOM = FailureRecord("w1", 1, 1, "", "ValueError: boom", NOW)
LATER = "2026-01-01T00:05:00Z"
TYPES = ["Running", "Resizing", "Degraded", "Suspended", "Complete", "Failed"]


def group(*indices: int, size: int = -1, **fields: Any) -> Observed:
    """Some workers that train."""
    pods, agents = [a_pod(i) for i in indices], [an_agent(f"w{i}") for i in indices]
    return observed(pods, agents, round=a_round(*indices, size=size), **fields)


def status_of(seen: Observed, job: dict[str, Any] | None = None, **said: Any) -> dict[str, Any]:
    described = a_job(**(job or {}))
    findings = Findings(**{"budget": Budget(), "target": a_target(described), **said})
    return describe_job(described, seen, assess_workers(seen), seen.round, findings)


def conditions_of(status: dict[str, Any]) -> dict[str, str]:
    """The reasons of the conditions that are true, and why Running and Suspended are not."""
    told = [c for c in status["conditions"] if c["status"] == "True" or c["type"] == "Running"]
    return {("" if c["status"] == "True" else "not ") + c["type"]: c["reason"] for c in told}


def message_of(status: dict[str, Any], type_: str) -> str:
    [message] = [condition["message"] for condition in status["conditions"] if condition["type"] == type_]
    return str(message)


ALL, TWO, NONE = group(0, 1, 2), group(0, 1), observed()
FAILED = observed([a_pod(0)], [an_agent("w0", "failed")], round=a_round(0))
CRASHED = Budget(failures=1, total=1, last=BOOM, backoff_until=NOW + 4)
SUSPENDED = {"suspend": True}
RESTART = GroupRestart(asked=True, under_way=True, cause=BOOM)
DEFERRED = Deferral(until=NOW + 30, change=replace(a_round(0, 1, 2, number=2), cause="w2 is ready"), seconds=30.0)
WAITS = {"resizePolicy": {"checkpointWaitSeconds": 30, "checkpointPath": "/c"}}
COOLS = {"resizePolicy": {"minSecondsBetweenGrowths": 60}, "status": {"operatorState": {"lastGrowthTime": TIME}}}


@pytest.mark.parametrize(
    ("seen", "job", "said", "state", "counts", "conditions"),
    [
        pytest.param(NONE, {}, {}, "Pending", (0, 0, 0), {"not Running": "WaitingForWorkers"}, id="new"),
        pytest.param(
            observed([a_pending_pod(0), a_pending_pod(1)]),
            {},
            {},
            "Pending",
            (2, 0, 0),
            {"not Running": "WaitingForWorkers"},
            id="its pods wait for nodes",
        ),
        pytest.param(
            observed([a_pod(0)], [an_agent("w0", "ready", 0)]),
            {"minimum": 2},
            {},
            "Pending",
            (1, 1, 0),
            {"not Running": "WaitingForWorkers"},
            id="fewer ready than the minimum",
        ),
        pytest.param(ALL, {}, {}, "Running", (3, 3, 3), {"Running": "RoundRunning"}, id="all train"),
        pytest.param(
            observed([a_pod(0)], [an_agent("w0", saving_since=NOW - 5)], round=a_round(0)),
            {"replicas": 1},
            {},
            "Running",
            (1, 1, 1),
            {"Running": "Saving"},
            id="its last checkpoint is being written",
        ),
        pytest.param(
            observed([a_pod(0)], [an_agent("w0", local_world_size=8)], round=a_round(0)),
            {"replicas": 1},
            {},
            "Running",
            (1, 1, 8),
            {"Running": "RoundRunning"},
            id="eight processes a worker, says the agent",
        ),
        pytest.param(
            observed([a_pod(0)], round=a_round(0)),
            {"replicas": 1, "nprocPerNode": 4},
            {},
            "Running",
            (1, 0, 4),
            {"Running": "RoundRunning"},
            id="four processes a worker, says the spec, as no agent has spoken",
        ),
        pytest.param(
            TWO,
            {},
            {},
            "Resizing",
            (2, 2, 2),
            {"Running": "RoundRunning", "Resizing": "SizeChanging", "Degraded": "WorkersMissing"},
            id="one is missing",
        ),
        pytest.param(
            ALL,
            {"replicas": 2},
            {},
            "Resizing",
            (3, 3, 3),
            {"Running": "RoundRunning", "Resizing": "SizeChanging"},
            id="one is too many",
        ),
        pytest.param(
            ALL,
            {},
            {"deferral": DEFERRED},
            "Resizing",
            (3, 3, 3),
            {"Running": "RoundRunning", "Resizing": "WaitingForCheckpoint"},
            id="a change waits for a checkpoint",
        ),
        pytest.param(
            TWO,
            COOLS,
            {"cooling": ["w2"]},
            "Resizing",
            (2, 2, 2),
            {"Running": "RoundRunning", "Resizing": "CoolingDown", "Degraded": "WorkersMissing"},
            id="growth waits for its pause",
        ),
        pytest.param(
            observed(round=a_round()), {}, {}, "Pending", (0, 0, 0), {"not Running": "WaitingForWorkers"}, id="an empty round"
        ),
        pytest.param(
            FAILED, {"replicas": 1}, {"budget": CRASHED}, "Pending", (1, 1, 0), {"not Running": "BackingOff"}, id="crash loop"
        ),
        pytest.param(
            ALL, {}, {"budget": CRASHED}, "Running", (3, 3, 3), {"Running": "RoundRunning"}, id="trains within the pause"
        ),
        pytest.param(
            ALL,
            {},
            {"restarting": RESTART},
            "Pending",
            (3, 3, 0),
            {"not Running": "GroupRestarted"},
            id="all workers are to be replaced",
        ),
        pytest.param(
            observed([a_pod(0, deleting=True)], [an_agent("w0")], round=a_round()),
            SUSPENDED,
            {},
            "Suspending",
            (0, 0, 0),
            {"not Running": "Suspending"},
            id="suspended, a pod is left",
        ),
        pytest.param(
            ALL,
            SUSPENDED,
            {"deferral": DEFERRED},
            "Suspending",
            (3, 3, 3),
            {"Running": "RoundRunning"},
            id="suspended, trains until its checkpoint",
        ),
        pytest.param(
            NONE,
            SUSPENDED,
            {},
            "Suspended",
            (0, 0, 0),
            {"not Running": "JobSuspended", "Suspended": "JobSuspended"},
            id="suspended, no pod is left",
        ),
        pytest.param(
            NONE,
            SUSPENDED,
            {"refusals": ["the API server refuses: no"]},
            "Suspended",
            (0, 0, 0),
            {"not Running": "JobSuspended", "Suspended": "RefusedByApiServer"},
            id="suspended, its pods would be refused",
        ),
        pytest.param(
            ALL,
            {},
            {"ending": Ending(True, "WorkersSucceeded", "all 3 workers have succeeded")},
            "Complete",
            (3, 3, 0),
            {"not Running": "WorkersSucceeded", "Complete": "WorkersSucceeded"},
            id="complete",
        ),
        pytest.param(
            TWO,
            {},
            {"ending": Ending(False, "TooManyFailures", "4 failures", BOOM)},
            "Failed",
            (2, 2, 0),
            {"not Running": "TooManyFailures", "Failed": "TooManyFailures"},
            id="failed",
        ),
        pytest.param(
            TWO,
            SUSPENDED,
            {"ending": Ending(False, "InvalidTemplate", "no")},
            "Failed",
            (2, 2, 0),
            {"not Running": "InvalidTemplate", "Failed": "InvalidTemplate"},
            id="failed while it is suspended",
        ),
    ],
)
def test_situation(
    seen: Observed,
    job: dict[str, Any],
    said: dict[str, Any],
    state: str,
    counts: tuple[int, int, int],
    conditions: dict[str, str],
) -> None:
    status = status_of(seen, job, **said)
    assert status["state"] == state
    assert (status["replicas"], status["readyReplicas"], status["worldSize"]) == counts
    assert conditions_of(status) == conditions
    assert [condition["type"] for condition in status["conditions"]] == TYPES


@pytest.mark.parametrize(
    ("seen", "job", "said", "type_", "message"),
    [
        pytest.param(ALL, {}, {}, "Running", "3 of 3 workers train", id="all train"),
        pytest.param(ALL, {}, {"refusals": ["no"]}, "Running", "3 of 3 workers train; no", id="all train, a write is refused"),
        pytest.param(ALL, {}, {}, "Resizing", "all 3 wanted workers train", id="wanted size"),
        pytest.param(
            ALL,
            {"replicas": 4, "resizePolicy": {"allowedReplicas": [1, 3]}},
            {},
            "Resizing",
            "all 3 wanted workers train; 4 were requested, which resizePolicy.allowedReplicas rounds down",
            id="allowed size",
        ),
        pytest.param(
            TWO,
            {"replicas": 3, "minimum": 2, "unitReplicas": 2},
            {},
            "Resizing",
            "all 2 wanted workers train; 3 were requested, which unitReplicas rounds down",
            id="whole units",
        ),
        pytest.param(TWO, {}, {}, "Resizing", "growing from 2 to 3 workers", id="grows"),
        pytest.param(TWO, {"replicas": 1}, {}, "Resizing", "shrinking from 2 to 1 workers", id="shrinks"),
        pytest.param(
            TWO,
            WAITS,
            {"deferral": DEFERRED},
            "Resizing",
            "growing from 2 to 3 workers: w2 is ready; waits up to 30 s for the next checkpoint in /c",
            id="grows after a checkpoint",
        ),
        pytest.param(
            TWO,
            COOLS,
            {"cooling": ["w2"]},
            "Degraded",
            "trains with 2 of 3 workers; w2 is ready; the group may grow at 2026-01-01T00:01:00Z, as "
            "resizePolicy.minSecondsBetweenGrowths is 60",
            id="grows after a pause",
        ),
        pytest.param(
            replace(TWO, pods=(*TWO.pods, a_pending_pod(2))),
            {},
            {"refusals": ["no"]},
            "Degraded",
            "trains with 2 of 3 workers; 1 pod: waiting to be scheduled; no",
            id="why one is missing",
        ),
        pytest.param(NONE, {"minimum": 2}, {}, "Running", "0 of 3 workers are ready; training needs 2", id="nothing there yet"),
        pytest.param(NONE, {}, {}, "Resizing", "no group is training yet; see condition Running", id="nothing to resize"),
        pytest.param(
            FAILED,
            {},
            {"budget": CRASHED},
            "Running",
            "restarting after failure 1 of 3 allowed; rank 1 (w1) failed, exit code 1: ValueError: boom",
            id="crash loop",
        ),
        pytest.param(
            ALL,
            {},
            {"restarting": RESTART},
            "Running",
            "failurePolicy.rules replaces all workers: rank 1 (w1) failed, exit code 1: ValueError: boom",
            id="group restart",
        ),
        pytest.param(
            observed([a_pod(0)]), SUSPENDED, {}, "Suspended", "spec.suspend is true: 1 pod is left", id="one pod is left"
        ),
        pytest.param(
            observed([a_pod(0), a_pod(1)]),
            SUSPENDED,
            {"refusals": ["no"]},
            "Suspended",
            "spec.suspend is true: 2 pods are left; no",
            id="two pods are left, a write is refused",
        ),
        pytest.param(NONE, SUSPENDED, {}, "Suspended", "spec.suspend is true: nothing runs", id="suspended"),
        pytest.param(
            ALL,
            SUSPENDED,
            {"deferral": DEFERRED},
            "Running",
            "3 workers train until the job is suspended",
            id="trains until it is suspended",
        ),
        pytest.param(
            ALL, {}, {"ending": Ending(True, "WorkersSucceeded", "all done")}, "Failed", "the job is complete", id="complete"
        ),
    ],
)
def test_message(seen: Observed, job: dict[str, Any], said: dict[str, Any], type_: str, message: str) -> None:
    assert message_of(status_of(seen, job, **said), type_) == message


@pytest.mark.parametrize(
    ("before", "reason"),
    [("", "NotSuspended"), ("NotSuspended", "NotSuspended"), ("JobSuspended", "JobResumed"), ("JobResumed", "JobResumed")],
)
def test_reason_of_a_job_that_is_not_suspended(before: str, reason: str) -> None:
    old = [{"type": "Suspended", "status": "False", "reason": before, "lastTransitionTime": TIME}] if before else []
    status = status_of(ALL, {"status": {"conditions": old}})
    assert next(c["reason"] for c in status["conditions"] if c["type"] == "Suspended") == reason


def test_transition_times_stay_until_the_condition_changes() -> None:
    old = status_of(ALL)
    new = status_of(replace(TWO, time=LATER), {"status": old})
    times = {condition["type"]: condition["lastTransitionTime"] for condition in new["conditions"]}
    changed = {"Resizing", "Degraded"}
    assert times == {type_: LATER if type_ in changed else TIME for type_ in TYPES}
