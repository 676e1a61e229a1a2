from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import CreatePod, CreateService, CreateStore
from elastic_pytorch_operator.model.observed import NodeView

from tests.operator.builders import a_job, condition, fields_of
from tests.operator.planning.stock.test_pod_exits import BOOM, GLOO, gave_up
from tests.operator.spec.test_failure_rules import DISRUPTED, on_codes, on_condition
from tests.operator.stock_simulation import StockSimulation

RENDEZVOUS_CLOSED = "RendezvousClosedError"


def start(backend: str = "c10d", **spec: Any) -> StockSimulation:
    rendezvous = {"backend": backend, **({"endpoint": "etcd:2379"} if backend == "etcd-v2" else {})}
    simulation = StockSimulation(a_job(rendezvous=rendezvous, **spec))
    simulation.settle(10)
    return simulation


def test_store_comes_first_then_the_workers() -> None:
    simulation = StockSimulation(a_job(rendezvous={"backend": "c10d"}))
    first = [
        a
        for a in simulation.reconcile().actions
        if isinstance(a, CreateService | CreateStore | CreatePod)
    ]
    assert first == [CreateService(), CreateStore(1)]
    simulation.settle(10)
    assert simulation.made == [1, 1, 1]
    status = simulation.status
    assert fields_of(status, "state", "readyReplicas", "worldSize", "round") == ("Running", 3, 3, 1)
    assert [worker["state"] for worker in status["workers"]] == ["Running"] * 3
    assert not any("rank" in worker for worker in status["workers"]), "ranks are torchrun's secret"


def test_etcd_of_the_user_needs_no_store() -> None:
    simulation = start("etcd-v2")
    assert (simulation.made, simulation.of("store")) == ([1, 1, 1], [])


@pytest.mark.parametrize("backend", ["c10d", "etcd-v2"])
def test_nothing_is_asked_for_twice(backend: str) -> None:
    simulation = start(backend)
    assert simulation.reconcile().actions == ()


def test_lost_worker_is_replaced_in_the_same_rendezvous() -> None:
    simulation = start()
    simulation.end(simulation.running()[1], 137)
    simulation.settle(10)
    assert simulation.made == [1, 1, 1, 1]
    status = simulation.status
    assert fields_of(status, "worldSize", "failures", "round") == (3, 0, 3)
    assert any(event.startswith("WorkerLost") for event in simulation.told)


def test_worker_that_has_ended_beside_its_sidecar_makes_room_for_its_replacement() -> None:
    simulation = start()
    simulation.sidecars = True
    lost = simulation.running()[1]
    simulation.end(lost, 137)
    simulation.settle(10)
    assert lost.name not in simulation.pods
    assert (simulation.made, simulation.status["worldSize"]) == ([1, 1, 1, 1], 3)


def test_workers_of_a_rendezvous_that_is_over_make_room_although_their_sidecars_run() -> None:
    simulation = start()
    simulation.sidecars = True
    over = {pod.name for pod in simulation.running()}
    for pod in simulation.running():
        simulation.end(pod, message=RENDEZVOUS_CLOSED)
    simulation.settle(60)
    assert len(simulation.made) == 6
    assert not over & set(simulation.pods)
    assert simulation.status["worldSize"] == 3


def test_sidecars_do_not_keep_a_job_from_its_end() -> None:
    simulation = start()
    simulation.sidecars = True
    first, *others = simulation.running()
    simulation.end(first, 0)
    simulation.settle(5)
    assert not simulation.pods[first.name].deleting, "who is done waits for the others"
    simulation.delete(first.name)
    simulation.reconcile()
    for pod in others:
        simulation.end(pod, 0)
    simulation.settle(5)
    assert simulation.status["state"] == "Complete"
    assert (simulation.made, simulation.pods) == ([1, 1, 1], {})


@pytest.mark.parametrize(("removed", "size"), [(True, 2), (False, 3)])
def test_node_is_lost_once_its_deletion_is_told_and_not_if_it_was_never_heard_of(
    removed: bool, size: int
) -> None:
    simulation = start("etcd-v2")
    worker = simulation.running()[0]
    simulation.full = True
    simulation.hung_nodes.add(worker.node)
    if removed:
        simulation.nodes[worker.node] = NodeView(worker.node, ready=False, removed=True)
    else:
        del simulation.nodes[worker.node]
    simulation.settle(10)
    assert simulation.status["worldSize"] == size
    assert (worker.name in simulation.pods) is not removed, "nothing will confirm the deletion"


def test_lost_node_is_left_behind() -> None:
    simulation = start()
    lost = simulation.running()[0]
    simulation.hung_nodes.add(lost.node)
    simulation.nodes[lost.node] = replace(simulation.nodes[lost.node], ready=False)
    if simulation.running("store")[0].node == lost.node:
        simulation.settle(30)
        assert set(simulation.made[3:]) == {simulation.running()[0].rendezvous}
    simulation.settle(30)
    assert simulation.status["worldSize"] == 3
    assert all(
        pod.node != lost.node
        for pod in simulation.running()
        if not pod.deleting and pod.name != lost.name
    )


def test_scaled_up_and_down() -> None:
    simulation = start(maximum=6)
    simulation.job = replace(simulation.job, wanted=5, requested=5)
    simulation.settle(15)
    assert simulation.status["worldSize"] == 5
    simulation.job = replace(simulation.job, wanted=2, requested=2)
    simulation.settle(15)
    assert simulation.status["worldSize"] == 2
    assert [pod.index for pod in simulation.running()] == [0, 1]
    assert set(simulation.made) == {1}
    assert any(event.startswith("ScaledDown") for event in simulation.told)
    assert not simulation.memory.victims, "they are forgotten with their pods"


def test_complete_when_all_have_succeeded() -> None:
    simulation = start()
    for pod in simulation.running():
        simulation.end(pod, 0)
        simulation.settle(2)
    assert simulation.status["state"] == "Complete"
    assert simulation.made == [1, 1, 1], "nobody who is done is replaced"
    simulation.settle(5)
    assert simulation.of("store") == []


def test_script_that_torchrun_has_given_up_fails_the_job() -> None:
    simulation = start()
    first, *others = simulation.running()
    simulation.end(first, message=gave_up(GLOO))
    simulation.settle(2)
    assert simulation.status["state"] != "Failed", "who is to blame may come down a little later"
    for pod in others:
        simulation.end(pod, message=gave_up(BOOM))
    simulation.settle(2)
    assert simulation.status["state"] == "Failed"
    assert simulation.status["rootCause"]["message"] == BOOM
    assert simulation.status["conditions"][-1]["reason"] == "TooManyFailures"


def test_closed_rendezvous_is_followed_by_a_new_one_and_costs_nothing() -> None:
    simulation = start()
    stopped, *others = simulation.running()
    simulation.delete(stopped.name)
    simulation.settle(1)
    for pod in others:
        simulation.end(pod, message=RENDEZVOUS_CLOSED)
    simulation.settle(30)
    status = simulation.status
    assert (status["worldSize"], status["failures"]) == (3, 0)
    [number] = {pod.rendezvous for pod in simulation.running()}
    assert number > 1
    assert [store.rendezvous for store in simulation.running("store")] == [number]
    assert any(event.startswith("RendezvousOver") for event in simulation.told)


def test_workers_that_hang_in_a_rendezvous_that_is_over_are_removed_before_a_new_one_begins() -> (
    None
):
    simulation = start()
    simulation.delete(simulation.running()[0].name)
    simulation.settle(1)
    simulation.end(simulation.running()[0], message=RENDEZVOUS_CLOSED)
    simulation.settle(30)
    assert {pod.rendezvous for pod in simulation.running()} != {1}
    assert simulation.status["worldSize"] == 3


def test_lost_store_takes_the_group_along_and_costs_no_failure() -> None:
    simulation = start()
    simulation.end(simulation.running("store")[0], 137)
    simulation.settle(2)
    simulation.end_all("RendezvousConnectionError")
    simulation.settle(30)
    status = simulation.status
    assert (status["worldSize"], status["failures"]) == (3, 0)
    assert len(simulation.running("store")) == 1


def test_store_out_of_reach_is_tried_again_ever_more_slowly() -> None:
    simulation = start("etcd-v2")
    for _ in range(200):
        simulation.end_all("RendezvousConnectionError")
        simulation.settle(1)
    assert simulation.status["state"] != "Failed"
    assert simulation.status["failures"] == 0
    assert len(simulation.made) < 3 * 12


@pytest.mark.parametrize(
    ("reason", "words", "ends"), [("OOMKilled", "", 2), ("Evicted", "local storage is full", 3)]
)
def test_worker_that_takes_more_than_its_limits_counts(reason: str, words: str, ends: int) -> None:
    simulation = start(failurePolicy={"maxFailures": 1})
    for number in range(ends):
        assert simulation.status["failures"] == max(0, number + 2 - ends)
        simulation.end(
            next(pod for pod in simulation.running() if pod.index == 1), 137, words, reason
        )
        simulation.settle(5)
    assert simulation.status["state"] == "Failed"
    assert (words or "memory") in simulation.status["conditions"][-1]["message"]


def test_below_the_minimum_the_job_waits_and_says_for_what() -> None:
    simulation = start(minimum=3)
    simulation.full = True
    simulation.end(simulation.running()[0], 137)
    simulation.settle(10)
    status = simulation.status
    assert (status["state"], status["worldSize"]) == ("Pending", 0)
    assert "2 of 3 workers are ready; training needs 3" in status["conditions"][0]["message"]
    simulation.full = False
    simulation.settle(10)
    assert simulation.status["worldSize"] == 3


def test_suspended_job_has_nothing_left_and_begins_anew_when_resumed() -> None:
    simulation = start()
    simulation.job = replace(simulation.job, suspend=True, wanted=0)
    simulation.settle(5)
    assert (simulation.of("worker"), simulation.of("store"), simulation.status["state"]) == (
        [],
        [],
        "Suspended",
    )
    simulation.job = replace(simulation.job, suspend=False, wanted=3)
    simulation.settle(10)
    assert simulation.status["worldSize"] == 3
    assert simulation.made[-1] > 1, "what was left of the old rendezvous might be closed"


def test_new_operator_changes_nothing() -> None:
    simulation = start()
    before = (set(simulation.pods), simulation.status["round"])
    simulation.restart_operator()
    simulation.settle(10)
    assert (set(simulation.pods), simulation.status["round"]) == before


def test_new_operator_blames_nobody_for_what_it_has_not_seen() -> None:
    simulation = start()
    simulation.restart_operator()
    simulation.settle(1)
    simulation.end_all(gave_up(GLOO))
    simulation.settle(20)
    assert fields_of(simulation.status, "state", "failures") == ("Running", 0)


def test_new_operator_takes_up_a_change_of_rendezvous_where_it_was() -> None:
    simulation = start()
    simulation.delete(simulation.running()[0].name)
    simulation.settle(1)
    for pod in simulation.running():
        simulation.end(pod, message=RENDEZVOUS_CLOSED)
    simulation.restart_operator()
    simulation.settle(20)
    assert fields_of(simulation.status, "worldSize", "failures") == (3, 0)


def test_outage_of_all_nodes_deletes_nothing() -> None:
    simulation = start()
    simulation.hung_nodes.update(simulation.nodes)
    simulation.nodes = {name: replace(node, ready=False) for name, node in simulation.nodes.items()}
    pods = set(simulation.pods)
    simulation.settle(9)
    assert not [pod for pod in simulation.pods.values() if pod.deleting]
    assert set(simulation.pods) == pods
    simulation.nodes = {name: replace(node, ready=True) for name, node in simulation.nodes.items()}
    simulation.hung_nodes.clear()
    simulation.settle(30)
    assert set(simulation.pods) == pods
    assert simulation.status["round"] == 1


def test_node_that_is_not_ready_for_a_moment_costs_nothing() -> None:
    simulation = start()
    node = simulation.running()[0].node
    simulation.nodes[node] = replace(simulation.nodes[node], ready=False)
    simulation.settle(8)
    simulation.nodes[node] = replace(simulation.nodes[node], ready=True)
    pods = set(simulation.pods)
    simulation.settle(30)
    assert set(simulation.pods) == pods


def test_worker_that_its_kubelet_rejects_is_made_at_a_growing_pace_and_fails_nothing() -> None:
    simulation = start(failurePolicy={"maxFailures": 0})
    lost = simulation.running()[0]
    for _ in range(600):
        simulation.settle(0.5)
        for pod in simulation.of("worker"):
            if pod.index == lost.index and not pod.ended:
                simulation.end(pod, exit_code=None, reason="UnexpectedAdmissionError")
    assert simulation.status["worldSize"] == 2
    assert len(simulation.made) <= 3 + 12


def test_gang_fails_if_a_member_is_lost_while_the_leader_changes() -> None:
    simulation = start(failurePolicy={"onPodLoss": "FailJob"})
    simulation.delete(simulation.running()[1].name, force=True)
    simulation.restart_operator()
    simulation.settle(10)
    assert "PodLost" in {condition["reason"] for condition in simulation.status["conditions"]}


def test_rule_on_the_scripts_exit_code_fails_the_job() -> None:
    """As torchrun's last words tell it: torchrun itself exits with 1."""
    simulation = start(failurePolicy={"rules": [on_codes("Ignore", 1), on_codes("FailJob", 42)]})
    simulation.end(simulation.running()[1], message=gave_up(BOOM, exit_code=42))
    simulation.settle(10)
    failed = condition(simulation.status, "Failed")
    assert failed["reason"] == "FailurePolicyRule"
    assert failed["message"].startswith(
        "failurePolicy.rules[1] (onExitCodes In 42) fails the job: rank 1 "
    )


def test_ignored_exit_code_begins_a_new_rendezvous_and_costs_nothing() -> None:
    simulation = start(
        failurePolicy={"maxFailures": 0, "backoffLimit": 0, "rules": [on_codes("Ignore", 42)]}
    )
    for _ in range(2):
        simulation.end(simulation.running()[1], message=gave_up(BOOM, exit_code=42))
        simulation.settle(60)
        assert fields_of(simulation.status, "state", "worldSize", "failures") == ("Running", 3, 0)
    assert [event for event in simulation.told if event.startswith("FailureIgnored")]
    assert len(set(simulation.made)) == 3, "rendezvous"
    simulation.end(simulation.running()[1], message=gave_up(BOOM))
    simulation.settle(10)
    assert simulation.status["state"] == "Failed"


def test_rules_on_lost_stock_workers() -> None:
    policy = {"onPodLoss": "FailJob", "rules": [on_condition("Count"), on_codes("Ignore", 137)]}
    simulation = start(failurePolicy=policy)
    evicted = simulation.running()[0].name
    simulation.pods[evicted] = replace(
        simulation.pods[evicted], conditions=frozenset({DISRUPTED}), deleting=True
    )
    simulation.reconcile()
    assert fields_of(simulation.status, "state", "failures") == ("Resizing", 1)
    simulation.settle(60)
    simulation.end(simulation.running()[0], 137)
    simulation.settle(60)
    assert fields_of(simulation.status, "state", "failures", "worldSize") == ("Running", 1, 3)
    simulation.delete(simulation.running()[0].name)
    simulation.reconcile()
    assert simulation.status["state"] == "Failed"
