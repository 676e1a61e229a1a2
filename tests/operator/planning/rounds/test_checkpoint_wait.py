from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import is_true
from elastic_pytorch_operator.api.names import CHECKPOINT_WAIT_ENDED
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import Observed, Progress
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import (
    CheckpointWait,
    Deferral,
    defer_for_checkpoint,
    leave_seconds,
)
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import NOW, a_job, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation, running
from tests.situations import situations

POLICY = {"checkpointWaitSeconds": 30, "checkpointPath": "/checkpoints"}
HERE = a_round(0, 1, number=7)
ORDERLY = replace(a_round(0, 1, 2, number=8, orderly_since=7), cause="w2 is ready")
NEWCOMER_FAILED = replace(ORDERLY, reason="WorkerFailed")
LOSS = replace(a_round(0, number=8), cause="w1 was deleted")


def job(grace: int = 30, **policy: Any) -> Job:
    container = {"name": "pytorch", "image": "torch"}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": grace}}
    return a_job(resizePolicy={**POLICY, **policy}, template=template)


def seen(
    now: float = NOW, *, deleting: bool = False, round_: Round | None = HERE, **agents: Any
) -> Observed:
    """What is known of w0 and w1 by their saves (None: they watch nothing) or states."""
    counts = {name: value for name, value in agents.items() if not isinstance(value, str)}
    states = {name: value for name, value in agents.items() if isinstance(value, str)}
    speaking = [
        an_agent(
            name, states.get(name, "running"), 7, progress=Progress(checkpoints=counts.get(name))
        )
        for name in ("w0", "w1", "w2")
    ]
    pods = [a_pod(0), a_pod(1, deleting=deleting), a_pod(2)]
    return replace(observed(pods, speaking, round=round_), now=now)


def since(seconds_ago: float, leaving: float | None = None, **counts: int) -> CheckpointWait:
    return CheckpointWait(7, NOW - seconds_ago, counts, None if leaving is None else NOW - leaving)


Case = tuple[Job, Observed, Round | None, CheckpointWait | None]


def case(
    now: Observed,
    *,
    wanted: Round | None = ORDERLY,
    known: CheckpointWait | None = None,
    job_: Job | None = None,
) -> Case:
    return job_ or job(), now, wanted, known


@situations(
    "given, until",
    {
        "nothing is to change": (case(seen(w0=3), wanted=None), None),
        "a change is wanted: it waits": (case(seen(w0=3)), NOW + 30),
        "it still waits, also though other agents' counts differ": (
            case(seen(w0=3, w1=1), known=since(10, w0=3)),
            NOW + 20,
        ),
        "a checkpoint has been written": (case(seen(w0=4), known=since(10, w0=3)), None),
        "by any member": (case(seen(w0=3, w1=2), known=since(10, w0=3, w1=1)), None),
        "by somebody who is no member": (
            case(seen(w2=2, w0=3), known=since(10, w0=3, w2=1)),
            NOW + 20,
        ),
        "one that is heard for the first time has seen old ones": (
            case(seen(w1=9), known=since(10, w0=3)),
            NOW + 20,
        ),
        "it has waited long enough": (case(seen(w0=3), known=since(30, w0=3)), None),
        "another round has come": (
            case(seen(w0=3), known=CheckpointWait(6, NOW - 90, {"w0": 0})),
            NOW + 30,
        ),
        "somebody is lost": (case(seen(w0=3), wanted=LOSS), None),
        "somebody is lost while it waits": (
            case(seen(w0=3), wanted=LOSS, known=since(10, w0=3)),
            None,
        ),
        "a newcomer has failed before its group has formed": (
            case(seen(w0=3), wanted=NEWCOMER_FAILED),
            None,
        ),
        "no worker watches": (case(seen()), None),
        "the folder has become unreadable": (case(seen(), known=since(10, w0=3)), None),
        "waiting is off": (case(seen(w0=3), job_=job(checkpointWaitSeconds=0)), None),
        "it has been turned off meanwhile": (
            case(seen(w0=3), known=since(10, w0=3), job_=job(checkpointWaitSeconds=0)),
            None,
        ),
        "no worker trains": (case(seen(round_=a_round(number=7), w0=3)), None),
        "no round yet": (case(seen(round_=None, w0=3), wanted=a_round(0, 1)), None),
        "a pod is deleted: half its grace period": (case(seen(deleting=True, w0=3)), NOW + 13),
        "an agent got SIGTERM": (case(seen(w0=3, w1="leaving")), NOW + 13),
        "a long grace period": (case(seen(deleting=True, w0=3), job_=job(grace=600)), NOW + 30),
        "a short one": (case(seen(deleting=True, w0=3), job_=job(grace=4)), None),
        "a pod is deleted while it waits": (
            case(seen(deleting=True, w0=3), known=since(10, w0=3)),
            NOW + 13,
        ),
        "shortly before its end": (case(seen(deleting=True, w0=3), known=since(25, w0=3)), NOW + 5),
        "the leaving one cannot wait longer": (
            case(seen(deleting=True, w0=3), known=since(13, 13, w0=3)),
            None,
        ),
    },
)
def test_change_is_held_or_goes(given: Case, until: float | None) -> None:
    known = given[3]
    hold = defer_for_checkpoint(*given)
    assert hold.until == until
    assert (hold.wait is None) is (until is None)
    assert bool(hold.waits) is (until is not None)
    ended = known is not None and known.round == 7 and until is None
    assert bool(hold.over) is ended


@pytest.mark.parametrize(
    ("now", "wanted", "end"),
    [
        (seen(w0=4), ORDERLY, "After 4.0 s: w0 has seen a new checkpoint in /checkpoints"),
        (seen(NOW + 26, w0=3), ORDERLY, "After 30.0 s without a new checkpoint in /checkpoints"),
        (seen(w0=3), LOSS, "After 4.0 s: the change cannot wait, w1 was deleted"),
        (seen(w0=3), None, "After 4.0 s: the group no longer needs to change"),
        (seen(w1="failed", w0=3), None, "After 4.0 s: the workers of w1 have failed"),
        (seen(), ORDERLY, "After 4.0 s: no agent can watch for a checkpoint in /checkpoints"),
    ],
)
def test_end_of_a_wait_is_explained(now: Observed, wanted: Round | None, end: str) -> None:
    assert defer_for_checkpoint(job(), now, wanted, since(4, w0=3)) == Deferral(over=end)


def test_wait_says_how_long_it_may_last() -> None:
    short = job(grace=9)
    held = defer_for_checkpoint(short, seen(deleting=True, w0=3), ORDERLY, None)
    assert held.waits == ("w2 is ready; waits up to 2.5 s for the next checkpoint in /checkpoints")


@situations(
    "job_, seconds",
    {
        "no-wait": (a_job(), 2),
        "half-the-grace-period": (job(), 15),
        "the-whole-wait": (job(grace=600), 32),
        "short-grace-period": (job(grace=4), 2),
        "none": (job(grace=0), 2),
        "short-wait": (job(checkpointWaitSeconds=5), 7),
    },
)
def test_leaving_pods_train_on_as_long_as_the_change_may_wait(job_: Job, seconds: float) -> None:
    assert leave_seconds(job_) == seconds


def trained() -> Simulation:
    """A group of two whose agents watch the folder."""
    simulation = running(replicas=2, resizePolicy=POLICY)
    write_checkpoint(simulation)
    simulation.settle(1)
    return simulation


def write_checkpoint(simulation: Simulation) -> None:
    for name, agent in simulation.agents.items():
        count = (agent.progress.checkpoints or 0) + 1
        simulation.agents[name] = replace(
            agent, progress=replace(agent.progress, checkpoints=count)
        )


def events(simulation: Simulation) -> list[str]:
    return [f"{a.reason}: {a.note}" for a in simulation.last.actions if isinstance(a, RecordEvent)]


def resizing(simulation: Simulation) -> tuple[str, str, str]:
    condition = simulation.condition("Resizing")
    return condition["status"], condition["reason"], condition["message"]


def test_newcomer_waits_for_the_checkpoint_and_joins_after_it() -> None:
    simulation = trained()
    simulation.scale(3)
    simulation.settle(10)
    assert len(simulation.declared) == 1, "the newcomer is ready, and waits"
    status, reason, message = resizing(simulation)
    assert (status, reason) == ("True", "WaitingForCheckpoint")
    assert message.startswith("growing from 2 to 3 workers: ")
    assert message.endswith("waits up to 30 s for the next checkpoint in /checkpoints")
    assert simulation.status["state"] == "Resizing"
    assert simulation.reconcile().recheck_at is not None
    write_checkpoint(simulation)
    todo = simulation.reconcile()
    assert todo.round is not None
    assert todo.round.size == 3
    ended, joined = events(simulation)
    assert ended.startswith(f"{CHECKPOINT_WAIT_ENDED}: After ")
    assert joined.startswith("WorkerJoined: Round 2, 2 -> 3 workers")
    assert simulation.memory.checkpoint_wait is None
    simulation.settle(1)
    assert resizing(simulation)[0] == "False"


def test_silent_member_is_missed_also_while_a_change_waits() -> None:
    simulation = trained()
    simulation.scale(3)
    simulation.settle(10)
    victim = simulation.declared[0].workers[1]
    simulation.hung_nodes.add(simulation.pods[victim].node)
    silent_at = simulation.reconcile().silent_at
    assert silent_at is not None
    assert silent_at <= simulation.now + 3, "long before the end of the wait"
    simulation.now = silent_at
    for name, pod in simulation.pods.items():
        if pod.node not in simulation.hung_nodes:
            simulation.agents[name] = replace(simulation.agents[name], heard_at=simulation.now)
    simulation.now += 0.1
    todo = simulation.reconcile()
    assert todo.round is not None
    assert victim not in todo.round.workers


def test_suspended_job_trains_on_to_its_checkpoint() -> None:
    simulation = trained()
    simulation.job = replace(simulation.job, suspend=True, wanted=0)
    simulation.settle(5)
    assert len(simulation.declared) == 1
    assert len(simulation.pods) == 2
    message = simulation.condition("Suspended")["message"]
    assert message.endswith("waits up to 30 s for the next checkpoint in /checkpoints")
    assert (simulation.status["state"], is_true(simulation.status, "Running")) == (
        "Suspending",
        True,
    )
    write_checkpoint(simulation)
    simulation.settle(3)
    assert simulation.sizes == [2, 0]
    assert not simulation.pods


def test_restarted_operator_waits_anew() -> None:
    simulation = trained()
    simulation.scale(1)
    simulation.settle(20)
    simulation.restart_operator()
    simulation.settle(25)
    assert len(simulation.declared) == 1
    simulation.settle(10)
    assert simulation.sizes == [2, 1]
