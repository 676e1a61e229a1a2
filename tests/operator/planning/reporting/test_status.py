"""State, counts and conditions of a job: one row a situation.

`test_status_fields.py` has the other fields of the status.
"""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import Ending, FailureRecord
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.group_restart import GroupRestart
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
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
    condition,
    observed,
)
from tests.situations import situations

BOOM = FailureRecord("w1", 1, 1, "", "ValueError: boom", NOW)
LATER = "2026-01-01T00:05:00Z"
TYPES = ["Running", "Resizing", "Degraded", "Suspended", "Complete", "Failed"]


def group(*indices: int) -> Observed:
    pods, agents = [a_pod(i) for i in indices], [an_agent(f"w{i}") for i in indices]
    return observed(pods, agents, round=a_round(*indices))


Case = tuple[Observed, dict[str, Any], dict[str, Any]]


def case(seen: Observed, job: dict[str, Any] | None = None, **said: Any) -> Case:
    """What is seen of a job with these fields, and what its plan has found besides."""
    return seen, job or {}, said


def status_of(given: Case) -> dict[str, Any]:
    seen, job, said = given
    described = a_job(**job)
    findings = Findings(**{"budget": Budget(), "target": a_target(described), **said})
    return describe_job(described, seen, assess_workers(seen), seen.round, findings)


def reasons_of(status: dict[str, Any]) -> list[str]:
    """Of the conditions that are true, and why Running is not."""
    told = [c for c in status["conditions"] if c["status"] == "True" or c["type"] == "Running"]
    return [f"{'' if c['status'] == 'True' else 'not '}{c['type']} {c['reason']}" for c in told]


ALL, TWO, NONE = group(0, 1, 2), group(0, 1), observed()
FAILED = observed([a_pod(0)], [an_agent("w0", "failed")], round=a_round(0))
CRASHED = Budget(failures=1, total=1, last=BOOM, backoff_until=NOW + 4)
SUSPENDED = {"suspend": True}
RESTART = GroupRestart(asked=True, under_way=True, cause=BOOM)
WAITS = "w2 is ready; waits up to 30 s for the next checkpoint in /checkpoints"


@situations(
    "given, expected",
    {
        "new": (case(NONE), "Pending 0/0/0: not Running WaitingForWorkers"),
        "its pods wait for nodes": (
            case(observed([a_pending_pod(0), a_pending_pod(1)])),
            "Pending 2/0/0: not Running WaitingForWorkers",
        ),
        "fewer ready than the minimum": (
            case(observed([a_pod(0)], [an_agent("w0", "ready", 0)]), {"minimum": 2}),
            "Pending 1/1/0: not Running WaitingForWorkers",
        ),
        "all train": (case(ALL), "Running 3/3/3: Running RoundRunning"),
        "its last checkpoint is being written": (
            case(
                observed([a_pod(0)], [an_agent("w0", saving_since=NOW - 5)], round=a_round(0)),
                {"replicas": 1},
            ),
            "Running 1/1/1: Running Saving",
        ),
        "eight processes a worker, says the agent": (
            case(
                observed([a_pod(0)], [an_agent("w0", local_world_size=8)], round=a_round(0)),
                {"replicas": 1},
            ),
            "Running 1/1/8: Running RoundRunning",
        ),
        "four processes a worker, says the spec, as no agent has spoken": (
            case(observed([a_pod(0)], round=a_round(0)), {"replicas": 1, "nprocPerNode": 4}),
            "Running 1/0/4: Running RoundRunning",
        ),
        "one is missing": (
            case(TWO),
            "Resizing 2/2/2: Running RoundRunning, Resizing SizeChanging, Degraded WorkersMissing",
        ),
        "one is too many": (
            case(ALL, {"replicas": 2}),
            "Resizing 3/3/3: Running RoundRunning, Resizing SizeChanging",
        ),
        "a change waits for a checkpoint": (
            case(ALL, waiting=WAITS),
            "Resizing 3/3/3: Running RoundRunning, Resizing WaitingForCheckpoint",
        ),
        "growth waits for its pause": (
            case(TWO, cooling="w2 is ready; the group may grow later"),
            "Resizing 2/2/2: Running RoundRunning, Resizing CoolingDown, Degraded WorkersMissing",
        ),
        "an empty round": (
            case(observed(round=a_round())),
            "Pending 0/0/0: not Running WaitingForWorkers",
        ),
        "crash loop": (
            case(FAILED, {"replicas": 1}, budget=CRASHED),
            "Pending 1/1/0: not Running BackingOff",
        ),
        "trains within the pause": (
            case(ALL, budget=CRASHED),
            "Running 3/3/3: Running RoundRunning",
        ),
        "all workers are to be replaced": (
            case(ALL, restarting=RESTART),
            "Pending 3/3/0: not Running GroupRestarted",
        ),
        "suspended, a pod is left": (
            case(observed([a_pod(0, deleting=True)], [an_agent("w0")], round=a_round()), SUSPENDED),
            "Suspending 0/0/0: not Running Suspending",
        ),
        "suspended, trains until its checkpoint": (
            case(ALL, SUSPENDED, waiting=WAITS),
            "Suspending 3/3/3: Running RoundRunning",
        ),
        "suspended, no pod is left": (
            case(NONE, SUSPENDED),
            "Suspended 0/0/0: not Running JobSuspended, Suspended JobSuspended",
        ),
        "suspended, its pods would be refused": (
            case(NONE, SUSPENDED, refusals=["the API server refuses: no"]),
            "Suspended 0/0/0: not Running JobSuspended, Suspended RefusedByApiServer",
        ),
        "complete": (
            case(ALL, ending=Ending(True, "WorkersSucceeded", "all 3 workers have succeeded")),
            "Complete 3/3/0: not Running WorkersSucceeded, Complete WorkersSucceeded",
        ),
        "failed": (
            case(TWO, ending=Ending(False, "TooManyFailures", "4 failures", BOOM)),
            "Failed 2/2/0: not Running TooManyFailures, Failed TooManyFailures",
        ),
        "failed while it is suspended": (
            case(TWO, SUSPENDED, ending=Ending(False, "InvalidTemplate", "no")),
            "Failed 2/2/0: not Running InvalidTemplate, Failed InvalidTemplate",
        ),
    },
)
def test_situation(given: Case, expected: str) -> None:
    status = status_of(given)
    counts = "/".join(str(status[name]) for name in ("replicas", "readyReplicas", "worldSize"))
    assert f"{status['state']} {counts}: {', '.join(reasons_of(status))}" == expected
    assert [each["type"] for each in status["conditions"]] == TYPES


@situations(
    "given, expected",
    {
        "all train": (case(ALL), "Running: 3 of 3 workers train"),
        "all train, a write is refused": (
            case(ALL, refusals=["no"]),
            "Running: 3 of 3 workers train; no",
        ),
        "wanted size": (case(ALL), "Resizing: all 3 wanted workers train"),
        "allowed size": (
            case(ALL, {"replicas": 4, "resizePolicy": {"allowedReplicas": [1, 3]}}),
            "Resizing: all 3 wanted workers train; 4 were requested, "
            "which resizePolicy.allowedReplicas rounds down",
        ),
        "whole units": (
            case(TWO, {"replicas": 3, "minimum": 2, "unitReplicas": 2}),
            "Resizing: all 2 wanted workers train; 3 were requested, "
            "which unitReplicas rounds down",
        ),
        "grows": (case(TWO), "Resizing: growing from 2 to 3 workers"),
        "shrinks": (case(TWO, {"replicas": 1}), "Resizing: shrinking from 2 to 1 workers"),
        "why one is missing": (
            case(replace(TWO, pods=(*TWO.pods, a_pending_pod(2))), refusals=["no"]),
            "Degraded: trains with 2 of 3 workers; 1 pod: waiting to be scheduled; no",
        ),
        "ignored fields": (
            case(
                ALL, {"template": {"spec": {"subdomain": "a", "containers": [{"name": "pytorch"}]}}}
            ),
            "Degraded: all 3 wanted workers train; to be removed, as it is ignored: "
            "subdomain in spec.template.spec, which the operator sets for each pod",
        ),
        "nothing there yet": (
            case(NONE, {"minimum": 2}),
            "Running: 0 of 3 workers are ready; training needs 2",
        ),
        "nothing to resize": (
            case(NONE),
            "Resizing: no group is training yet; see condition Running",
        ),
        "crash loop": (
            case(FAILED, budget=CRASHED),
            "Running: restarting after failure 1 of 3 allowed; rank 1 (w1) failed, exit code 1: "
            "ValueError: boom",
        ),
        "group restart": (
            case(ALL, restarting=RESTART),
            "Running: failurePolicy.rules replaces all workers: rank 1 (w1) failed, exit code 1: "
            "ValueError: boom",
        ),
        "one pod is left": (
            case(observed([a_pod(0)]), SUSPENDED),
            "Suspended: spec.suspend is true: 1 pod is left",
        ),
        "two pods are left, a write is refused": (
            case(observed([a_pod(0), a_pod(1)]), SUSPENDED, refusals=["no"]),
            "Suspended: spec.suspend is true: 2 pods are left; no",
        ),
        "suspended": (case(NONE, SUSPENDED), "Suspended: spec.suspend is true: nothing runs"),
        "trains until it is suspended": (
            case(ALL, SUSPENDED, waiting=WAITS),
            "Running: 3 workers train until the job is suspended",
        ),
        "complete": (
            case(ALL, ending=Ending(True, "WorkersSucceeded", "all done")),
            "Failed: the job is complete",
        ),
    },
)
def test_message(given: Case, expected: str) -> None:
    said = {f"{c['type']}: {c['message']}" for c in status_of(given)["conditions"]}
    assert expected in said


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("", "NotSuspended"),
        ("NotSuspended", "NotSuspended"),
        ("JobSuspended", "JobResumed"),
        ("JobResumed", "JobResumed"),
    ],
)
def test_reason_of_a_job_that_is_not_suspended(before: str, reason: str) -> None:
    old = {"type": "Suspended", "status": "False", "reason": before, "lastTransitionTime": TIME}
    status = status_of(case(ALL, {"status": {"conditions": [old] if before else []}}))
    assert condition(status, "Suspended")["reason"] == reason


def test_transition_times_stay_until_the_condition_changes() -> None:
    old = status_of(case(ALL))
    new = status_of(case(replace(TWO, time=LATER), {"status": old}))
    times = {each["type"]: each["lastTransitionTime"] for each in new["conditions"]}
    changed = {"Resizing", "Degraded"}
    assert times == {type_: LATER if type_ in changed else TIME for type_ in TYPES}
