from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import Action, CreatePod, CreateStore, DeletePodGroup, PutPodGroup
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failed_writes import POD_GROUP, Answers, FailedWrite
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.workers.worker_pods import plan_pod_group
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import NOW, a_job, a_pod, a_round, a_target, an_agent, observed
from tests.situations import situations

BEFORE, BESIDE = PutPodGroup(before_pods=True, without_pods=True), PutPodGroup(before_pods=False, without_pods=True)
DELETE = DeletePodGroup()
FAILED = {POD_GROUP: FailedWrite("no such API", NOW + 10, lasting=True)}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}], "round": 3}


def a_gang(**fields: Any) -> Job:
    return a_job(**{"replicas": 3, "minimum": 2, "scheduling": {"gangScheduler": "Coscheduling"}, **fields})


@situations(
    "job, seen, actions",
    {
        "no gang is asked for": (a_job(), {}, ()),
        "it is not known": (a_gang(), {}, (BEFORE,)),
        "there is none": (a_gang(), {"pod_group_minimum": 0}, (BEFORE,)),
        "minReplicas has changed": (a_gang(), {"pod_group_minimum": 3}, (BESIDE,)),
        "it is as it should be": (a_gang(), {"pod_group_minimum": 2}, ()),
        "it is not known while a group trains": (a_gang(), {"round": a_round(0, 1)}, (BESIDE,)),
        "it is not known, and the group is below its minimum": (a_gang(), {"round": a_round()}, (BEFORE,)),
        "the same, with a pod in it": (a_gang(), {"round": a_round(), "pods": [a_pod(0)]}, (PutPodGroup(before_pods=True),)),
        "suspended, a pod is left": (a_gang(suspend=True), {"pods": [a_pod(0)], "pod_group_minimum": 2}, ()),
        "suspended": (a_gang(suspend=True), {"pod_group_minimum": 2}, (DELETE,)),
        "suspended, and it is not known": (a_gang(suspend=True), {}, (DELETE,)),
        "suspended, and there is none": (a_gang(suspend=True), {"pod_group_minimum": 0}, ()),
    },
)
def test_pod_group_is_as_the_job_needs_it(job: Job, seen: dict[str, Any], actions: tuple[Action, ...]) -> None:
    assert plan_pod_group(job, a_target(job), observed(**seen), {}).actions == actions


def creates(job: Job, moment: Observed, memory: Memory) -> list[type]:
    actions = plan(job, moment, memory).actions
    return [type(action) for action in actions if isinstance(action, PutPodGroup | CreatePod | CreateStore)]


@pytest.mark.parametrize(
    ("backend", "first"), [("operator", [CreatePod] * 3), ("c10d", [CreateStore]), ("etcd-v2", [CreatePod] * 3)]
)
def test_no_pod_is_made_as_long_as_the_pod_group_cannot_be(backend: str, first: list[type]) -> None:
    endpoint = {"endpoint": "etcd:2379"} if backend == "etcd-v2" else {}
    job = a_gang(rendezvous={"backend": backend, **endpoint})
    assert creates(job, observed(), Memory()) == [PutPodGroup, *first], "the writes keep this order"
    assert creates(job, observed(), Memory(answers=Answers(failed=FAILED))) == [PutPodGroup]
    assert creates(job, observed(pod_group_minimum=2), Memory()) == first


def test_pod_group_that_cannot_be_written_keeps_no_replacement_waiting() -> None:
    members = [a_pod(0), a_pod(1)]
    moment = observed(members, [an_agent("w0"), an_agent("w1")], round=a_round(0, 1, 2))
    assert creates(a_gang(), moment, Memory(answers=Answers(failed=FAILED))) == [PutPodGroup, CreatePod]


def test_new_leader_looks_for_the_pod_group_before_it_makes_missing_pods() -> None:
    moment = replace(observed([a_pod(0)], heard_before=frozenset({"w0"})), listening_since=NOW - 0.1)
    assert creates(a_gang(), moment, Memory()) == [PutPodGroup, CreatePod, CreatePod]
    assert creates(a_gang(), moment, Memory(answers=Answers(failed=FAILED))) == [PutPodGroup]


def test_pod_group_of_a_job_that_has_ended_is_deleted_once() -> None:
    job = a_gang(status=COMPLETE)
    assert DELETE in plan(job, observed(), Memory()).actions
    assert DELETE not in plan(job, observed(pod_group_minimum=0), Memory()).actions
    assert DELETE not in plan(a_job(status=COMPLETE), observed(), Memory()).actions
