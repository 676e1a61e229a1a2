"""`spec.spares`: pods beyond the wanted workers, which wait for a loss."""

from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import CreatePod, DeletePod
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, parse_job

from tests.operator.builders import NOW, a_job, a_manifest, a_pod, a_round, an_agent, observed

JOB = a_job(replicas=2, minimum=None, maximum=None, spares=1)


def group(*pods: PodView, waiting: tuple[int, ...] = (), **fields: Any) -> Observed:
    """A group of w0 and w1, and others that are ready."""
    agents = [an_agent("w0"), an_agent("w1"), *(an_agent(f"w{index}", "ready", 0) for index in waiting)]
    facts = {"round": a_round(0, 1), "last_heard_at": NOW, "on_time_since": 0.0, **fields}
    return observed(pods, [agent for agent in agents if agent.worker in {pod.name for pod in pods}], **facts)


def planned(seen: Observed, job: Job = JOB) -> Plan:
    return plan(job, seen, Memory())


def created(todo: Plan) -> list[int]:
    return [action.index for action in todo.actions if isinstance(action, CreatePod)]


def deleted(todo: Plan) -> list[str]:
    return [action.name for action in todo.actions if isinstance(action, DeletePod)]


def status(todo: Plan) -> dict[str, Any]:
    [written] = [action.status for action in todo.actions if hasattr(action, "status")]
    return dict(written)


def test_job_begins_with_its_spares() -> None:
    assert created(planned(observed())) == [0, 1, 2]


def test_group_of_full_size_is_left_alone_and_counts_no_spare() -> None:
    todo = planned(group(a_pod(0), a_pod(1), a_pod(2), waiting=(2,)))
    assert (todo.round, created(todo), deleted(todo)) == (None, [], [])
    found = status(todo)
    assert (found["replicas"], found["readyReplicas"], found["readySpares"]) == (2, 2, 1)
    assert [worker["state"] for worker in found["workers"]] == ["Running", "Running", "Ready"]


def test_spare_takes_the_place_of_a_lost_worker_in_the_same_round_and_another_follows() -> None:
    todo = planned(group(a_pod(0), a_pod(2), waiting=(2,)))
    assert todo.round is not None
    assert list(todo.round.workers) == ["w0", "w2"]
    assert created(todo) == [1]


def test_scale_down_takes_a_spare_and_leaves_a_member_as_the_next_one() -> None:
    job = a_job(replicas=1, minimum=1, maximum=2, spares=1)
    todo = planned(group(a_pod(0), a_pod(1), a_pod(2), waiting=(2,)), job)
    assert todo.round is not None
    assert (list(todo.round.workers), deleted(todo)) == (["w0"], ["w2"])


def test_growth_takes_the_spare_at_once() -> None:
    job = a_job(replicas=3, minimum=1, maximum=4, spares=1)
    todo = planned(group(a_pod(0), a_pod(1), a_pod(2), waiting=(2,)), job)
    assert todo.round is not None
    assert (list(todo.round.workers), created(todo)) == (["w0", "w1", "w2"], [3])


def test_suspended_job_has_none() -> None:
    job = a_job(replicas=2, minimum=None, maximum=None, spares=1, suspend=True)
    assert created(planned(observed(), job)) == []


@pytest.mark.parametrize(
    ("spares", "problem"),
    [
        (-1, "spec.spares: must be greater than or equal to 0, not -1"),
        (257, "spec.spares: must be less than or equal to 256, not 257"),
        ("1", "spec.spares: must be a whole number, not '1'"),
    ],
)
def test_numbers_that_are_refused(spares: object, problem: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        a_job(spares=spares)
    assert str(refusal.value) == problem


def test_job_that_waits_for_quota_is_refused_spares() -> None:
    manifest = a_manifest(spares=1)
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    with pytest.raises(InvalidJob) as refusal:
        parse_job(manifest)
    assert str(refusal.value).startswith("spec.spares: may not be set for a job in a queue of Kueue")
