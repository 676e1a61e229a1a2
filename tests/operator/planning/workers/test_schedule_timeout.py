import random
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import has_ended, is_true
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import NodeView, Observed, PodView
from elastic_pytorch_operator.planning.workers.liveness import assess_workers
from elastic_pytorch_operator.planning.workers.schedule_timeout import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    NO_WAIT,
    ScheduleWait,
    give_back,
    judge_schedule,
    pause_seconds,
)
from elastic_pytorch_operator.planning.workers.worker_pods import Replicas
from elastic_pytorch_operator.spec.job import Job

from tests.hypothesis_examples import seeds
from tests.operator.builders import (
    NOW,
    TIME,
    a_dead_pod,
    a_job,
    a_pending_pod,
    a_pod,
    a_round,
    a_target,
    actions_of,
    an_agent,
    observed,
)
from tests.operator.simulation import Simulation
from tests.situations import situations

TIMEOUT = 60


def a_timed_job(**fields: Any) -> Job:
    return a_job(
        **{"replicas": 3, "minimum": 3, "scheduling": {"scheduleTimeoutSeconds": TIMEOUT}, **fields}
    )


def seen(*pods: PodView, **fields: Any) -> Observed:
    return observed(pods, [an_agent(pod.name, "ready", 0) for pod in pods if pod.started], **fields)


def judge(job: Job, moment: Observed, known: ScheduleWait = NO_WAIT) -> ScheduleWait:
    return judge_schedule(job, a_target(job), moment, assess_workers(moment), known)


@situations(
    "pods, short",
    {
        "two have a place, three are needed": ([a_pod(0), a_pod(1), a_pending_pod(2)], True),
        "one is still starting in its place": (
            [a_pod(0), a_pod(1, started=False, phase="Pending"), a_pending_pod(2)],
            True,
        ),
        "one has ended": ([a_pod(0), a_pod(1), a_dead_pod(2)], True),
        "one is being deleted": ([a_pod(0), a_pod(1), a_pod(2, deleting=True)], True),
        "one is on a lost node": ([a_pod(0), a_pod(1), a_pod(2, node="lost", started=False)], True),
        "none has a place": ([a_pending_pod(0), a_pending_pod(1), a_pending_pod(2)], False),
        "there is no pod": ([], False),
        "all have a place, and one pulls its image": (
            [a_pod(0), a_pod(1), a_pod(2, started=False, phase="Pending")],
            False,
        ),
    },
)
def test_time_runs_while_places_are_held_for_too_few(pods: list[PodView], short: bool) -> None:
    nodes = {
        "node-0": NodeView("node-0"),
        "lost": NodeView("lost", ready=False),
        "node-2": NodeView("node-2"),
    }
    found = judge(a_timed_job(), seen(*pods, nodes=nodes))
    assert (found.short_since == NOW) is short
    assert found.recheck_at == (NOW + TIMEOUT if short else None)
    assert not found.timeouts


HALF = (a_pod(0), a_pod(1), a_pending_pod(2))


@situations(
    "job, fields",
    {
        "without the field": (a_job(replicas=3, minimum=3), {}),
        "suspended": (a_timed_job(suspend=True), {}),
        "an elastic job has its minimum": (a_timed_job(minimum=2), {}),
        "a group trains": (a_timed_job(), {"round": a_round(0, 1, 2)}),
    },
)
def test_nothing_is_given_back(job: Job, fields: dict[str, Any]) -> None:
    assert judge(job, seen(*HALF, **fields), ScheduleWait(2, NOW - 1000)) == NO_WAIT


def test_places_are_given_back_after_the_timeout_and_asked_for_again_after_the_pause() -> None:
    job = a_timed_job()
    early = judge(job, seen(*HALF), ScheduleWait(1, NOW - TIMEOUT + 1))
    assert (early.timeouts, early.recheck_at) == (1, NOW + 1)
    late = judge(job, seen(*HALF), ScheduleWait(1, NOW - TIMEOUT))
    pause = pause_seconds(job.uid, 2)
    assert (late.timeouts, late.short_since, late.retry_at, late.recheck_at) == (
        2,
        None,
        NOW + pause,
        NOW + pause,
    )
    assert (late.retry_time or "").startswith("2026-01-01T00:00:")
    assert judge(job, seen(*HALF), late) is late, "it waits"
    assert judge(replace(job, generation=2), seen(*HALF), late).short_since == NOW, (
        "a new spec is tried at once"
    )
    again = judge(job, replace(seen(), now=late.retry_at), late)
    assert again == ScheduleWait(2), (
        "it asks for pods, and remembers how often it has given them back"
    )


def test_a_group_below_its_minimum_gives_its_places_back_too() -> None:
    empty = replace(a_round(), number=4)
    found = judge(a_timed_job(), seen(*HALF, round=empty), ScheduleWait(0, NOW - TIMEOUT))
    assert found.timeouts == 1


def test_all_pods_go_that_may_serve_and_none_is_made() -> None:
    ended, going = a_dead_pod(3), a_pod(4, deleting=True)
    moment, spent = seen(*HALF, ended, going), a_dead_pod(5)
    wanted = Replicas(create=(5,), discard=(spent,))
    back = give_back(wanted, ScheduleWait(1, retry_at=NOW + 1), moment)
    assert back == Replicas(create=(), victims=frozenset({"w0", "w1", "w2"}), discard=(spent,)), (
        "logs of ended pods stay"
    )
    assert give_back(wanted, ScheduleWait(1, retry_at=NOW), moment) is wanted


def test_pause_grows_to_a_bound_and_differs_from_job_to_job() -> None:
    for timeouts, longest in [
        (1, 30.0),
        (2, 60.0),
        (3, 120.0),
        (4, 240.0),
        (5, 300.0),
        (50, 300.0),
    ]:
        pauses = {pause_seconds(f"job-{number}", timeouts) for number in range(200)}
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(pauses) == 200
        assert max(pauses) - min(pauses) > 0.45 * longest
    assert pause_seconds("a", 3) == pause_seconds("a", 3)


def two_jobs(seed: int, replicas: int) -> list[Simulation]:
    """Two jobs of three workers or more on two nodes with room for two pods each."""
    scheduling = {"scheduleTimeoutSeconds": 30}
    nodes = {name: NodeView(name) for name in ("node-0", "node-1")}
    jobs = [
        Simulation(
            replace(
                a_job(name=name, replicas=replicas, minimum=3, maximum=4, scheduling=scheduling),
                uid=f"{seed}-{name}",
            ),
            nodes=nodes,
            step_seconds=0.5,  # the scheduler and the jobs wait for whole seconds, or longer
        )
        for name in ("one", "two")
    ]
    for job, other in (jobs, reversed(jobs)):
        job.beside.append(other)
    return jobs


def share(jobs: list[Simulation], seed: int) -> list[str]:
    """Plays jobs beside each other for an hour; each trains for two minutes.

    Returns which trained, in order.

    As kube-scheduler does, this one leaves a pod without a node alone for 1, 2, 4, … 10 s.
    """
    chance, tries, due = random.Random(seed), dict[str, int](), dict[str, float]()
    trained, since = list[str](), dict[str, float]()
    until = jobs[0].now + 3600
    while jobs[0].now < until and not all(has_ended(job.job.status) for job in jobs):
        pending = [
            (job, pod)
            for job in jobs
            for pod in job.pods.values()
            if not pod.node and not pod.deleting
        ]
        chance.shuffle(pending)
        for job, pod in pending:
            key = f"{job.job.key} {pod.name}"
            if job.now >= due.get(key, 0.0):
                job.place(pod)
                due[key] = job.now + min(10, 2 ** tries.get(key, 0))
                tries[key] = tries.get(key, 0) + 1
        for job in jobs:
            name = job.job.key.name
            job.now += job.step_seconds
            job.live()
            job.reconcile()
            if job.round is not None and job.round.size and name not in since:
                since[name] = job.now
                trained.append(name)
            if name in since and job.now >= since[name] + 120:
                job.succeed()
            if has_ended(job.job.status):
                job.pods.clear()
        room = sum(bool(pod.node) and not pod.ended for job in jobs for pod in job.pods.values())
        assert room <= 4, "more pods than the nodes have room for"
    return trained


def holds_half(jobs: list[Simulation]) -> bool:
    return all(sum(bool(pod.node) for pod in job.pods.values()) == 2 for job in jobs)


@pytest.mark.simulation
@pytest.mark.parametrize("replicas", [3, 4])
@seeds(30)
def test_two_jobs_that_each_hold_half_complete_one_after_the_other(
    seed: int, replicas: int
) -> None:
    jobs = two_jobs(seed, replicas)
    for job in jobs:
        job.reconcile()
        for pod in list(job.pods.values())[:2]:
            job.place(pod)
    assert holds_half(jobs)
    trained = share(jobs, seed)
    assert sorted(trained) == ["one", "two"]
    for job in jobs:
        assert is_true(job.job.status, names.COMPLETE)
        assert job.job.status["totalFailures"] == 0
        assert next(round_.reason for round_ in job.declared if round_.size) == names.FIRST_ROUND


def test_job_tells_that_it_has_given_its_places_back() -> None:
    job = Simulation(a_timed_job(), nodes={"node-0": NodeView("node-0")})
    job.settle(TIMEOUT - 5)
    assert len(job.pods) == 3
    events = []
    for _ in range(200):
        job.settle(0.25)
        events += actions_of(job.last, RecordEvent)
        if not job.pods:
            break
    assert not job.pods
    running = job.condition(names.RUNNING)
    assert (running["status"], running["reason"]) == ("False", names.SCHEDULE_TIMEOUT)
    assert job.job.status["operatorState"]["scheduleTimeouts"] == 1
    assert [event.reason for event in events] == [names.SCHEDULE_TIMEOUT]
    assert events[0].with_status, "once, however often a plan is made before the status is written"
    job.nodes["node-1"] = NodeView("node-1")
    job.settle(FIRST_PAUSE_SECONDS + 10)
    assert job.round is not None
    assert job.round.size == 3
    assert "scheduleTimeouts" not in job.job.status["operatorState"]


def test_new_leader_waits_out_the_pause() -> None:
    job = Simulation(a_timed_job(), nodes={"node-0": NodeView("node-0")})
    job.settle(TIMEOUT + 5)
    assert not job.pods
    job.restart_operator()
    job.settle(10)
    assert not job.pods
    assert job.job.status["operatorState"]["scheduleTimeouts"] == 1
    job.settle(MAX_PAUSE_SECONDS)
    assert job.pods or job.job.status["operatorState"]["scheduleTimeouts"] > 1


def test_job_without_places_says_what_becomes_of_its_pods() -> None:
    assert ScheduleWait(1, retry_time=TIME).explain(a_timed_job()) == (
        "fewer than 3 workers had a node for 60 s (scheduling.scheduleTimeoutSeconds): "
        "their pods are deleted to make room for "
        f"other jobs, and the next attempt is at {TIME}"
    )
