from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import (
    Action,
    CreatePod,
    CreateStore,
    DeletePodGroup,
    PutPodGroup,
)
from elastic_pytorch_operator.model.observed import NodeView, Observed
from elastic_pytorch_operator.planning.failed_writes import POD_GROUP, Answers, FailedWrite
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.workers.liveness import assess_workers
from elastic_pytorch_operator.planning.workers.worker_pods import (
    Going,
    Replicas,
    plan_pod_group,
    plan_replicas,
)
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import (
    NOW,
    a_dead_pod,
    a_job,
    a_pending_pod,
    a_pod,
    a_round,
    a_target,
    an_agent,
    observed,
)
from tests.situations import situations


def decide(seen: Observed, wanted: int, spares: int = 0, **going: Any) -> Replicas:
    return plan_replicas(
        a_job(), Target(wanted, spares=spares), seen, assess_workers(seen), Going(**going)
    )


def running(*indices: int) -> Observed:
    pods, agents = [a_pod(i) for i in indices], [an_agent(f"w{i}") for i in indices]
    return observed(pods, agents, round=a_round(*indices))


def test_missing_pods_are_created_with_the_smallest_free_indices() -> None:
    assert decide(observed(), 3).create == (0, 1, 2)
    assert decide(running(0, 2), 3).create == (1,)
    assert decide(running(0, 3), 2) == Replicas()


def test_dead_and_leaving_pods_are_replaced() -> None:
    seen = observed(
        [a_pod(0), a_dead_pod(1), a_pod(2, deleting=True)], [an_agent("w0"), an_agent("w2")]
    )
    assert decide(seen, 3).create == (1, 2)


def test_dead_pod_is_kept_for_its_log_until_the_next_of_its_index_has_died() -> None:
    first = a_dead_pod(1, name="w1-a", created_at=1.0)
    second = a_dead_pod(1, name="w1-b", created_at=2.0)
    assert decide(observed([first]), 2).discard == ()
    assert decide(observed([first, second]), 2).discard == (first,)


LINGERING = a_pod(1, started=False, exit_code=1, sidecar_runs=True)


@pytest.mark.parametrize("wanted", [3, 2, 0])
def test_pod_that_lingers_beside_its_sidecar_goes(wanted: int) -> None:
    """Its replacement needs its place, devices and quota; what is unwanted holds nothing."""
    seen = observed(
        [a_pod(0), LINGERING, a_pod(2)], [an_agent("w0"), an_agent("w2")], round=a_round(0, 2)
    )
    assert decide(seen, wanted).discard == (LINGERING,)
    assert decide(seen, wanted).create == ((1,) if wanted == 3 else ())


def test_pod_that_lingers_is_not_deleted_twice() -> None:
    assert decide(observed([replace(LINGERING, deleting=True)]), 1).discard == ()


def test_member_that_has_succeeded_stays_while_its_round_does() -> None:
    done = replace(LINGERING, exit_code=0)
    seen = observed(
        [a_pod(0), done], [an_agent("w0"), an_agent("w1", "succeeded")], round=a_round(0, 1)
    )
    assert decide(seen, 2) == Replicas()
    hidden = observed([a_pod(0), done], [an_agent("w0"), an_agent("w1")], round=a_round(0, 1))
    assert decide(hidden, 2) == Replicas(create=(1,), discard=(done,)), (
        "an exit code alone is no success"
    )
    deleted_by_others = replace(done, deleting=True, ended_before_deletion=True)
    assert decide(replace(seen, pods=(seen.pods[0], deleted_by_others)), 2) == Replicas()
    next_round = replace(seen, round=a_round(0, number=2))
    assert decide(next_round, 2) == Replicas(create=(1,), discard=(done,))


def test_victims_serve_least() -> None:
    assert decide(running(0, 1, 2, 3), 2).victims == {"w2", "w3"}
    pending = observed(
        [a_pod(1), a_pod(2), a_pending_pod(0)],
        [an_agent("w1"), an_agent("w2")],
        round=a_round(1, 2),
    )
    assert decide(pending, 2).victims == {"w0"}
    unready = observed(
        [a_pod(0), a_pod(1), a_pod(2)], [an_agent("w1"), an_agent("w2")], round=a_round(1, 2)
    )
    assert decide(unready, 2).victims == {"w0"}
    elsewhere = observed(
        [a_pod(0, node="node-1"), a_pod(1), a_pod(2)], [an_agent(f"w{i}") for i in range(3)]
    )
    assert decide(elsewhere, 2, doubted=["node-1"]).victims == {"w0"}


def test_worker_of_a_group_that_has_stopped_goes_after_newcomers() -> None:
    agents = [an_agent("w0", "ready", 0), an_agent("w1", "ready", 0), an_agent("w2", "ready", 2)]
    seen = observed([a_pod(i) for i in range(3)], agents, round=a_round(number=3))
    assert decide(seen, 2).victims == {"w1"}


def test_twin_of_an_index_goes() -> None:
    seen = observed(
        [a_pod(0), a_pod(0, name="w0-twin", created_at=2.0)],
        [an_agent("w0"), an_agent("w0-twin")],
        round=a_round(0),
    )
    assert decide(seen, 2).victims == {"w0-twin"}
    assert decide(seen, 2).create == (1,)


@pytest.mark.parametrize(
    ("removed", "heard_at", "abandoned"),
    [(True, NOW - 9, True), (True, NOW, False), (False, NOW - 9, True), (False, NOW, False)],
)
def test_pod_is_given_up_for_its_node_only_if_its_agent_is_silent(
    removed: bool, heard_at: float, abandoned: bool
) -> None:
    nodes = {
        "node-0": NodeView("node-0"),
        "node-1": NodeView("node-1", ready=False, removed=removed),
    }
    pods = [a_pod(0), a_pod(1, node="node-1")]
    seen = observed(
        pods, [an_agent("w0"), an_agent("w1", heard_at=heard_at)], nodes=nodes, round=a_round(0, 1)
    )
    assert decide(seen, 2) == (
        Replicas(create=(1,), abandon=(pods[1],)) if abandoned else Replicas()
    )


def test_deletion_that_no_kubelet_will_confirm_is_asked_for_again_once_the_node_is_removed() -> (
    None
):
    leaving = a_pod(1, node="node-1", deleting=True)
    for removed in (True, False):
        nodes = {"node-1": NodeView("node-1", ready=False, removed=removed)}
        assert decide(observed([leaving], nodes=nodes), 1).abandon == (
            (leaving,) if removed else ()
        )


def test_outdated_pods_are_victims_and_are_replaced_once_all_of_them_go() -> None:
    outdated = ["w0", "w1"]
    todo = decide(running(0, 1), 2, outdated=outdated)
    assert (todo.create, todo.victims) == ((), {"w0", "w1"})
    first_goes = observed([a_pod(0, deleting=True), a_pod(1)], [an_agent("w1")])
    assert decide(first_goes, 2, outdated=outdated) == Replicas(victims=frozenset({"w1"}))
    all_go = observed([a_pod(0, deleting=True), a_pod(1, deleting=True)])
    assert decide(all_go, 2, outdated=outdated) == Replicas(create=(0, 1))
    replaced = observed(
        [
            a_pod(0, deleting=True),
            a_pod(1, deleting=True),
            a_pod(0, name="w0-b"),
            a_pod(1, name="w1-b"),
        ]
    )
    assert decide(replaced, 2, outdated=outdated) == Replicas()


def test_workers_that_are_to_go_are_replaced_at_once_and_stay_as_long_as_they_may() -> None:
    assert decide(running(0, 1), 2, displaced=["w1"]) == Replicas(
        create=(1,), victims=frozenset({"w1"})
    )
    assert decide(running(0, 1), 2, leaving=["w1"]) == Replicas(
        create=(1,), victims=frozenset({"w1"})
    )
    assert decide(running(0, 1), 2, staying=["w1"]) == Replicas(create=(1,))
    assert decide(running(0, 1), 2, misled=["w1"]) == Replicas(create=(1,), discard=(a_pod(1),))
    assert decide(running(0, 1), 2, misled=["w1"], displaced=["w1"]) == Replicas(
        create=(1,), victims=frozenset({"w1"})
    )


def with_spares(members: tuple[int, ...], spares: tuple[int, ...]) -> Observed:
    return replace(running(*members, *spares), round=a_round(*members))


def test_spares_are_created_beside_the_wanted_pods_and_keep_apart() -> None:
    assert decide(observed(), 2, 2) == Replicas(create=(0, 1, 2, 3), apart=frozenset({2, 3}))
    assert decide(running(0, 1), 2, 1) == Replicas(create=(2,), apart=frozenset({2}))
    assert decide(with_spares((0, 2), (1,)), 2, 1) == Replicas()


@pytest.mark.parametrize("lost", [0, 2])
def test_lost_pod_is_replaced_by_one_that_keeps_apart_while_there_is_a_spare(lost: int) -> None:
    rest = [index for index in range(3) if index != lost]
    seen = observed(
        [a_dead_pod(lost), *map(a_pod, rest)],
        [an_agent(f"w{i}") for i in rest],
        round=a_round(0, 1),
    )
    assert decide(seen, 2, 1) == Replicas(create=(lost,), apart=frozenset({lost}))


def test_of_two_lost_pods_one_replacement_is_for_the_group() -> None:
    seen = observed([a_dead_pod(0), a_dead_pod(1), a_pod(2)], [an_agent("w2")], round=a_round(0, 1))
    assert decide(seen, 2, 1) == Replicas(create=(0, 1), apart=frozenset({1}))


@situations(
    "members, others, wanted, spares, victims",
    {
        "a scale-down takes a member, as the spare is still one": ((0, 1, 2), (3,), 2, 1, {"w2"}),
        "a member becomes the spare that is missing": ((0, 1, 2, 3), (), 2, 1, {"w3"}),
        "whatever its index": ((1, 2, 3), (0,), 2, 1, {"w3"}),
        "without spares the one outside of the round goes": ((1, 2), (0,), 2, 0, {"w0"}),
        "of two spares that of the highest index": ((2, 3), (0, 1), 2, 1, {"w1"}),
        "both at once": ((0, 1, 2), (3,), 2, 0, {"w2", "w3"}),
        "a spare that is wanted stays": ((0, 1), (2,), 3, 0, set()),
        "none is wanted": ((0, 1), (2,), 0, 0, {"w0", "w1", "w2"}),
    },
)
def test_victims_are_spares_only_if_there_are_too_many(
    members: tuple[int, ...], others: tuple[int, ...], wanted: int, spares: int, victims: set[str]
) -> None:
    assert decide(with_spares(members, others), wanted, spares).victims == victims


def test_spare_goes_before_a_member_on_a_doubted_node() -> None:
    seen = with_spares((0, 1), (2,))
    assert decide(
        replace(seen, pods=(a_pod(0, node="node-1"), *seen.pods[1:])), 2, doubted=["node-1"]
    ).victims == {"w2"}


BEFORE, BESIDE = (
    PutPodGroup(before_pods=True, without_pods=True),
    PutPodGroup(before_pods=False, without_pods=True),
)
DELETE = DeletePodGroup()
FAILED = {POD_GROUP: FailedWrite("no such API", NOW + 10, lasting=True)}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}], "round": 3}


def a_gang(**fields: Any) -> Job:
    return a_job(
        **{"replicas": 3, "minimum": 2, "scheduling": {"gangScheduler": "Coscheduling"}, **fields}
    )


@situations(
    "job, seen, actions",
    {
        "no gang is asked for": (a_job(), {}, ()),
        "it is not known": (a_gang(), {}, (BEFORE,)),
        "there is none": (a_gang(), {"pod_group_minimum": 0}, (BEFORE,)),
        "minReplicas has changed": (a_gang(), {"pod_group_minimum": 3}, (BESIDE,)),
        "it is as it should be": (a_gang(), {"pod_group_minimum": 2}, ()),
        "it is not known while a group trains": (a_gang(), {"round": a_round(0, 1)}, (BESIDE,)),
        "it is not known, and the group is below its minimum": (
            a_gang(),
            {"round": a_round()},
            (BEFORE,),
        ),
        "the same, with a pod in it": (
            a_gang(),
            {"round": a_round(), "pods": [a_pod(0)]},
            (PutPodGroup(before_pods=True),),
        ),
        "suspended, a pod is left": (
            a_gang(suspend=True),
            {"pods": [a_pod(0)], "pod_group_minimum": 2},
            (),
        ),
        "suspended": (a_gang(suspend=True), {"pod_group_minimum": 2}, (DELETE,)),
        "suspended, and it is not known": (a_gang(suspend=True), {}, (DELETE,)),
        "suspended, and there is none": (a_gang(suspend=True), {"pod_group_minimum": 0}, ()),
    },
)
def test_pod_group_is_as_the_job_needs_it(
    job: Job, seen: dict[str, Any], actions: tuple[Action, ...]
) -> None:
    assert plan_pod_group(job, a_target(job), observed(**seen), {}).actions == actions


def creates(job: Job, moment: Observed, memory: Memory) -> list[type]:
    actions = plan(job, moment, memory).actions
    return [
        type(action)
        for action in actions
        if isinstance(action, PutPodGroup | CreatePod | CreateStore)
    ]


@pytest.mark.parametrize(
    ("backend", "first"),
    [("operator", [CreatePod] * 3), ("c10d", [CreateStore]), ("etcd-v2", [CreatePod] * 3)],
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
    assert creates(a_gang(), moment, Memory(answers=Answers(failed=FAILED))) == [
        PutPodGroup,
        CreatePod,
    ]


def test_new_leader_looks_for_the_pod_group_before_it_makes_missing_pods() -> None:
    moment = replace(
        observed([a_pod(0)], heard_before=frozenset({"w0"})), listening_since=NOW - 0.1
    )
    assert creates(a_gang(), moment, Memory()) == [PutPodGroup, CreatePod, CreatePod]
    assert creates(a_gang(), moment, Memory(answers=Answers(failed=FAILED))) == [PutPodGroup]


def test_pod_group_of_a_job_that_has_ended_is_deleted_once() -> None:
    job = a_gang(status=COMPLETE)
    assert DELETE in plan(job, observed(), Memory()).actions
    assert DELETE not in plan(job, observed(pod_group_minimum=0), Memory()).actions
    assert DELETE not in plan(a_job(status=COMPLETE), observed(), Memory()).actions
