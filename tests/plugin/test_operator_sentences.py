"""What the client reads of what the operator tells: annotations of events, and conditions."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_client import names
from elastic_pytorch_client.reading.diagnosis import Diagnosis, Evidence, diagnose
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.timeline import JobEvent, read_events
from elastic_pytorch_client.views.widgets import state_style
from elastic_pytorch_operator.api import names as operator_names
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.model.actions import PatchStatus, RecordEvent
from elastic_pytorch_operator.model.failure import Ending, FailureRecord, describe_end
from elastic_pytorch_operator.model.observed import Observed, Progress
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.completion import decide_ending
from elastic_pytorch_operator.planning.failed_writes import Answers
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.reporting.events import News, record_events
from elastic_pytorch_operator.planning.reporting.interruption import Interruption, Interruptions
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
from elastic_pytorch_operator.planning.workers.liveness import assess_workers
from elastic_pytorch_operator.reconcile.existing_objects import BlockedError

from tests.operator.builders import (
    NOW,
    TIME,
    a_dead_pod,
    a_job,
    a_manifest,
    a_pending_pod,
    a_pod,
    a_round,
    a_target,
    an_agent,
    observed,
)
from tests.operator.planning.test_suspension import suspend
from tests.operator.simulation import running
from tests.situations import situations

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BOOM = FailureRecord(
    "w1", 1, 1, "", "Traceback (most recent call last):\n  ...\nValueError: boom", NOW
)


def test_names_are_the_operators() -> None:
    told = {name: value for name, value in vars(names).items() if name.isupper()}
    assert told == {name: getattr(operator_names, name) for name in told}


def as_manifests(events: Sequence[RecordEvent]) -> list[dict[str, Any]]:
    """Events as the API has them, a second apart."""
    return [
        {
            "eventTime": (BEGIN + timedelta(seconds=second)).isoformat(),
            "reason": event.reason,
            "note": event.note,
            "type": "Warning" if event.warning else "Normal",
            "regarding": {"uid": "uid-lm"},
            "metadata": {"annotations": dict(event.annotations)},
        }
        for second, event in enumerate(events)
    ]


def read_one(
    seen: Observed, declared: Round | None = None, resumed: Interruption | None = None
) -> JobEvent:
    [event] = read_events(
        as_manifests(record_events(a_job(), a_target(a_job()), seen, News(declared, resumed))),
        "uid-lm",
    )
    return event


@situations(
    "before, declared",
    {
        "first round": (None, a_round(0, 1, 2)),
        "fewer workers": (a_round(0, 1, 2), a_round(0, 2, number=2)),
        "more workers": (a_round(0), a_round(0, 1, number=2)),
        "as many workers": (a_round(0, 1), a_round(0, 2, number=4)),
        "all stop": (a_round(0, 1), a_round(number=12)),
    },
)
@pytest.mark.parametrize(
    "cause",
    [
        "all 3 wanted workers are ready",
        "rank 1 (w1) failed, exit code 1: a\nb: 2 -> 3 workers: c",
        "",
    ],
)
def test_round(before: Round | None, declared: Round, cause: str) -> None:
    event = read_one(observed(round=before), replace(declared, cause=cause))
    assert (event.round, event.workers, event.cause) == (declared.number, declared.size, cause)


@pytest.mark.parametrize(
    "reason", [operator_names.WORKER_LOST, operator_names.WORKER_JOINED, operator_names.SCALED_DOWN]
)
@pytest.mark.parametrize(("lost", "steps"), [(None, 0), (0, 0), (1, 1), (13, 13)])
def test_interruption(reason: str, lost: int | None, steps: int) -> None:
    event = read_one(
        observed(round=a_round(0, 1)), resumed=Interruption(2, reason, NOW, 5, 1.26, lost, size=2)
    )
    assert (event.workers, event.cause, event.seconds, event.steps_lost) == (2, reason, 1.26, steps)


def view(
    seen: Observed, *, job: dict[str, Any] | None = None, budget: Budget | None = None, **said: Any
) -> JobView:
    """A job as the client sees it, whose status the operator has just written."""
    parsed = a_job(**(job or {}))
    status = describe_job(
        parsed,
        seen,
        assess_workers(seen),
        seen.round,
        Findings(budget or Budget(), a_target(parsed), **said),
    )
    return view_job({**a_manifest(**(job or {})), "status": status})


def why(job: JobView) -> Diagnosis:
    return diagnose(job, Evidence((), None, (), {}, datetime.fromisoformat(TIME)))


TWO_OF_THREE = observed([a_pod(0), a_pod(1)], [an_agent("w0"), an_agent("w1")], round=a_round(0, 1))
NOTHING_TRAINS = observed([a_pending_pod(0)])
ALL = observed(
    [a_pod(i) for i in range(3)], [an_agent(f"w{i}") for i in range(3)], round=a_round(0, 1, 2)
)


@situations(
    "error, told",
    {
        "refusal": (
            ClusterError(403, 'pods "w2" is forbidden: exceeded quota: small'),
            'The API server refuses: pods "w2" is forbidden',
        ),
        "trouble": (
            ClusterError(500, "etcdserver: no leader"),
            "The API server fails: etcdserver: no leader.",
        ),
        "claim": (
            BlockedError(409, "the claim data-lm-0 exists"),
            "The API server refuses: the claim data-lm-0 exists.",
        ),
    },
)
@situations(
    "seen, job",
    {
        "degraded": (TWO_OF_THREE, {}),
        "waiting": (NOTHING_TRAINS, {}),
        "whole": (ALL, {}),
        "stopping": (TWO_OF_THREE, {"suspend": True}),
        "suspended": (observed(), {"suspend": True}),
    },
)
def test_refusal(seen: Observed, job: dict[str, Any], error: ClusterError, told: str) -> None:
    diagnosis = why(view(seen, job=job, refusals=(error.words,)))
    assert not diagnosis.well
    assert [finding.what.startswith(told) for finding in diagnosis.findings].count(True) == 1
    quota = [finding for finding in diagnosis.findings if "kubectl describe quota" in finding.do]
    assert bool(quota) == ("exceeded quota" in error.words)


def test_other_number_of_processes() -> None:
    agents = [an_agent(name, local_world_size=8) for name in ("w0", "w1")]
    agents.append(an_agent("w2", "ready", 0, local_world_size=4))
    seen = observed([a_pod(0), a_pod(1), a_pod(2)], agents, round=a_round(0, 1))
    [finding, *_] = why(view(seen)).findings
    assert finding.what == (
        "Workers are left out because the others run another number of processes: "
        "w2 on node node-0 runs 4."
    )
    assert "set spec.nprocPerNode to a number" in finding.do


def test_pause_between_resizes() -> None:
    cooling = f"w2 is ready; the group may grow at {TIME}"
    [finding] = why(view(TWO_OF_THREE, cooling=cooling)).findings
    assert finding.what.startswith(f"Growing from 2 to 3 workers: {cooling}")
    assert "minSecondsBetweenGrowths delays growth" in finding.do


def test_crash_loop() -> None:
    seen = observed([a_pod(0)], [an_agent("w0", "failed")], round=a_round(0))
    budget = Budget(failures=2, last=BOOM, backoff_until=NOW + 8)
    [finding, *_] = why(view(seen, budget=budget)).findings
    assert finding.what == (
        "Its script fails soon after each start: restarting after failure 2 of 3 allowed; "
        "rank 1 (w1) failed, exit code 1: ValueError: boom. "
        "The operator waits longer before each restart."
    )


@situations(
    "seen, told",
    {
        "no node": (
            NOTHING_TRAINS,
            "0 of 3 workers are ready; training needs 1; 1 pod: waiting to be scheduled",
        ),
        "mute": (
            observed([a_pod(0)]),
            "0 of 3 workers are ready; training needs 1; 1 pod: its agent has not",
        ),
        "degraded": (TWO_OF_THREE, "Trains with 2 of 3 workers"),
    },
)
def test_condition_in_the_operators_own_words(seen: Observed, told: str) -> None:
    [finding] = why(view(seen)).findings
    assert finding.what.startswith(told)


def ending_of(job: dict[str, Any], seen: Observed = ALL, **remembered: Any) -> Ending:
    of, memory = a_job(**job), Memory(**remembered)
    ending, _ = decide_ending(of, a_target(of), seen, assess_workers(seen), memory, NONE_FAILED)
    assert ending is not None
    return ending


BACKOFF_LIMIT = {"failurePolicy": {"backoffLimit": 1}}


@pytest.mark.parametrize(
    ("ending", "advice"),
    [
        (ending_of({}, budget=Budget(failures=4, last=BOOM)), "Correct the script"),
        (
            ending_of(BACKOFF_LIMIT, budget=Budget(total=2, last=BOOM)),
            "raise failurePolicy.backoffLimit",
        ),
        (ending_of({}, budget=Budget(fatal=BOOM)), "A rule of failurePolicy.rules"),
        (ending_of({}, answers=Answers(invalid='Pod "w" is invalid')), "Correct the template"),
        (ending_of({"activeDeadlineSeconds": 9}, active_since=NOW - 9), "Raise activeDeadline"),
        (
            ending_of({"failurePolicy": {"onPodLoss": "FailJob"}}, replace(ALL, pods=ALL.pods[1:])),
            "With Replace",
        ),
        (
            ending_of({}, observed([a_pending_pod(0, waiting="InvalidImageName: x")])),
            "Correct the image",
        ),
        (
            ending_of({}, observed([a_pod(0, phase="Succeeded", started=False, exit_code=0)])),
            "Write the script into args",
        ),
    ],
    ids=lambda case: case.reason if isinstance(case, Ending) else "",
)
def test_advice_for_each_end(ending: Ending, advice: str) -> None:
    job = view(ALL, ending=ending)
    diagnosis = why(job)
    assert (job.failed, diagnosis.headline) == (True, f"lm has failed: {ending.reason}.")
    assert advice in diagnosis.findings[0].do


OOM_KILLED = describe_end(a_dead_pod(1, exit_code=137, exit_reason="OOMKilled"))
LIMIT = "Raise the container's memory limit in spec.template"
DEVICE = "Have the script use less of the device's memory"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (f"the container {OOM_KILLED}", LIMIT),
        (
            "OutOfMemory: the kernel killed it: the container is out of memory; "
            "raise its memory limit or make it use less",
            LIMIT,
        ),
        (
            "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
            "GPU 0 has",
            DEVICE,
        ),
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB", DEVICE),
        ("MemoryError", LIMIT),
        (
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: "
            "you tried to allocate 400 bytes.",
            LIMIT,
        ),
        ("ValueError: memory of the past", "Correct the script"),
    ],
)
@situations("job", {"in a row": {}, "in its life": BACKOFF_LIMIT})
def test_lack_of_memory_is_no_fault_of_the_script(
    job: dict[str, Any], message: str, advice: str
) -> None:
    last = replace(BOOM, message=message)
    ending = ending_of(job, budget=Budget(failures=4, total=4, last=last))
    do = why(view(ALL, ending=ending)).findings[0].do
    assert advice in do
    assert ("Correct the script" in do) == (advice == "Correct the script")


def test_completion() -> None:
    seen = replace(ALL, agents={f"w{i}": an_agent(f"w{i}", "succeeded") for i in range(3)})
    job = view(seen, ending=ending_of({}, seen))
    assert (job.complete, job.ended, why(job).well) == (True, True, True)


def test_whole_status() -> None:
    progress = Progress(
        20, 10, total=80, loss=2.5, checkpoint_step=16, metrics=(("accuracy", 0.93),)
    )
    agents = [an_agent(f"w{i}", progress=progress, steps_per_second=7.9) for i in range(2)]
    seen = observed([a_pod(0), a_pod(1)], agents, round=a_round(0, 1, number=3))
    interruption = Interruption(
        3, operator_names.WORKER_LOST, NOW - 9, 12, 1.26, 3, time=TIME, size=2
    )
    budget = Budget(failures=1, total=2, last=replace(BOOM, node="node-1", time=TIME, pid=77))
    findings = Findings(budget, a_target(a_job()), Interruptions(last=interruption))
    status = describe_job(a_job(), seen, assess_workers(seen), seen.round, findings)
    job = view_job({**a_manifest(), "status": status})
    assert (job.state, job.ready, job.world, job.round, job.seen) == ("Resizing", 2, 2, 3, True)
    assert (job.failures, job.total_failures, job.interruptions) == (1, 2, 1)
    assert job.started == datetime.fromisoformat(TIME)
    known = {field.name: getattr(job.progress, field.name) for field in fields(job.progress)}
    steps = {"step": 20, "total": 80, "checkpoint_step": 16, "steps_per_second": 7.9}
    assert known == {**steps, "loss": 2.5, "metrics": {"accuracy": 0.93}}
    assert job.progress.seconds_left == 8
    assert job.last_interruption is not None
    last = job.last_interruption
    assert (last.cause, last.seconds, last.steps_lost) == ("WorkerLost", 1.26, 3)
    assert job.root_cause is not None
    assert job.root_cause.where == "w1, rank 1, process 77, on node-1, at 2026-01-01 00:00:00 UTC"
    assert [(w.name, w.index, w.rank, w.node, w.state) for w in job.members] == [
        ("w0", 0, 0, "node-0", "Running"),
        ("w1", 1, 1, "node-0", "Running"),
    ]


EVICTED = a_pod(1, phase="Failed", exit_reason="Evicted", exit_message="its disk is full")


@pytest.mark.parametrize(
    ("record", "hang", "said"),
    [
        (replace(BOOM, rank=3, pid=7), False, "w1, rank 3, process 7, exit code 1"),
        (replace(BOOM, exit_code=137, signal="SIGKILL"), False, "w1, rank 1, signal SIGKILL"),
        (replace(BOOM, exit_code=None, message="no step was finished"), True, "w1, rank 1, a hang"),
        (
            FailureRecord("w1", None, None, "", describe_end(EVICTED), NOW, pod_uid="uid-w1"),
            False,
            "w1",
        ),
    ],
)
def test_how_a_failure_came(record: FailureRecord, hang: bool, said: str) -> None:
    cause = view(ALL, budget=Budget(failures=1, last=record)).root_cause
    assert cause is not None
    assert (cause.hang, cause.where_and_how) == (hang, said)


def test_every_state_has_a_colour() -> None:
    simulation = running()
    seen: set[str] = set()
    changes = (
        lambda: simulation.kill_pod(simulation.members[0]),
        lambda: simulation.scale(1),
        lambda: suspend(simulation),
        lambda: suspend(simulation, resume=True),
        simulation.succeed,
    )
    for change in changes:
        change()
        for _ in range(40):
            simulation.settle(0.25)
            status = simulation.status
            seen.update([status["state"], *(worker["state"] for worker in status["workers"])])
    running_on = {"Running", "Resizing", "Suspending", "Suspended", "Pending", "Complete"}
    assert running_on | {"Starting", "Lost"} <= seen
    assert [state for state in seen if not state_style(state)] == []


def test_a_plan_writes_what_these_tests_read() -> None:
    todo = plan(a_job(), TWO_OF_THREE, Memory())
    [written] = [action.status for action in todo.actions if isinstance(action, PatchStatus)]
    assert view_job({**a_manifest(), "status": written}).condition("Degraded") is not None
