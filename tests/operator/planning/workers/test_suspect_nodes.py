"""Which nodes replacements keep away from."""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.pod_views import view_pod
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.actions import CreatePod
from elastic_pytorch_operator.model.observed import NodeView, Observed, PodView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.workers.liveness import assess_workers
from elastic_pytorch_operator.planning.workers.suspect_nodes import (
    SUSPICION_SECONDS,
    avoids_in_vain,
    others_have_room,
    suspect_nodes,
)
from elastic_pytorch_operator.reconcile.execute import Executor

from tests.operator.builders import NOW, a_dead_pod, a_job, a_pending_pod, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation

SILENT = NOW - 10


def suspects(seen: Observed, known: dict[str, float] | None = None) -> dict[str, float]:
    return suspect_nodes(known or {}, seen, assess_workers(seen, suspects=known or {}))


def group(silent: float = SILENT, **fields: Any) -> Observed:
    """Workers 0 and 1 on a node each; the second has not been heard for long."""
    pods = [a_pod(0), a_pod(1, node="node-1")]
    return observed(pods, [an_agent("w0"), an_agent("w1", heard_at=silent)], round=a_round(0, 1), **fields)


def test_a_node_whose_worker_is_lost_while_its_pod_claims_to_run() -> None:
    assert suspects(group()) == {"node-1": NOW}
    assert suspects(group(silent=NOW)) == {}


def test_a_node_whose_kubelet_tells_of_the_end_lives() -> None:
    assert suspects(observed([a_pod(0), a_dead_pod(1, node="node-1")], [an_agent("w0")], round=a_round(0, 1))) == {}


def test_a_node_that_is_not_ready_needs_no_suspicion() -> None:
    nodes = {"node-0": NodeView("node-0"), "node-1": NodeView("node-1", ready=False)}
    assert suspects(group(nodes=nodes), {"node-1": NOW - 1}) == {}


@pytest.mark.parametrize(
    ("since", "heard_at", "still"),
    [(NOW - 5, SILENT, True), (NOW - 5, NOW - 1, False), (NOW - SUSPICION_SECONDS - 1, SILENT - SUSPICION_SECONDS, False)],
)
def test_suspicion_lasts_until_somebody_speaks_there_or_for_long_enough(since: float, heard_at: float, still: bool) -> None:
    assert suspects(group(silent=heard_at), {"node-1": since}) == ({"node-1": since} if still else {})


def test_suspicion_outlasts_the_deletion_of_the_lost_pod() -> None:
    pods = [a_pod(0), a_pod(1, node="node-1", deleting=True)]
    seen = observed(pods, [an_agent("w0"), an_agent("w1", heard_at=SILENT)], round=a_round(0))
    assert suspects(seen, {"node-1": NOW - 5}) == {"node-1": NOW - 5}


def test_a_node_that_has_not_been_heard_of_yet_may_be_suspected() -> None:
    assert suspects(group(nodes={})) == {"node-1": NOW}


TEMPLATE = {"spec": {"nodeSelector": {"gpu": "yes"}, "containers": [{"name": "pytorch"}]}}
GPU_NODES = {name: NodeView(name, labels={"gpu": "yes"}) for name in ("gpu-0", "gpu-1")}
OTHERS = {name: NodeView(name) for name in ("cpu-0", "cpu-1")}


@pytest.mark.parametrize(
    ("suspected", "changed", "pods", "room"),
    [
        (["gpu-0"], {}, [], True),
        (["gpu-0", "gpu-1"], {}, [], False),
        (["gpu-0"], {"gpu-1": NodeView("gpu-1", unschedulable=True, labels={"gpu": "yes"})}, [], False),
        (["gpu-0"], {"gpu-1": NodeView("gpu-1", ready=False, labels={"gpu": "yes"})}, [], False),
        (["gpu-0"], {"gpu-1": NodeView("gpu-1")}, [], False),
        (["gpu-0"], {}, [a_pending_pod(0, avoids=frozenset({"gpu-0"}))], True),
        (["gpu-0"], {}, [a_pending_pod(0, unschedulable=True)], True),
        (["gpu-0"], {}, [a_pending_pod(0, unschedulable=True, avoids=frozenset({"gpu-0"}))], False),
    ],
)
def test_room_is_elsewhere_only_if_another_node_fits_and_is_not_full(
    suspected: list[str], changed: dict[str, NodeView], pods: list[PodView], room: bool
) -> None:
    assert others_have_room(suspected, {**OTHERS, **GPU_NODES, **changed}, pods, TEMPLATE) is room


def test_a_pod_waits_in_vain_once_the_node_it_avoids_has_turned_out_to_live() -> None:
    pod = a_pending_pod(0, avoids=frozenset({"a"}))
    assert avoids_in_vain(pod, [], {"a": NodeView("a")})
    assert not avoids_in_vain(pod, ["a"], {"a": NodeView("a")})
    assert avoids_in_vain(replace(pod, unschedulable=True), ["a"], {"a": NodeView("a")}), "no other node has room"
    assert not avoids_in_vain(replace(pod, unschedulable=True), [], {"a": NodeView("a", ready=False)})
    assert not avoids_in_vain(a_pending_pod(0, unschedulable=True), ["a"], {"a": NodeView("a")})
    assert not avoids_in_vain(pod, [], {"a": NodeView("a", ready=False)})
    assert not avoids_in_vain(pod, [], {})
    assert not avoids_in_vain(a_pod(0, avoids=frozenset({"a"})), [], {"a": NodeView("a")})


def test_replacement_goes_elsewhere_although_the_dead_node_is_the_emptiest() -> None:
    simulation = Simulation(a_job(replicas=3, minimum=1, maximum=3))
    simulation.settle(20)
    simulation.hung_nodes.add("node-1")
    simulation.settle(15)
    assert [round_.size for round_ in simulation.declared] == [3, 2, 3]
    assert all(simulation.pods[worker].node != "node-1" for worker in simulation.declared[-1].workers)


def test_replacement_without_room_elsewhere_takes_the_node_once_it_is_back() -> None:
    simulation = Simulation(a_job(replicas=3, minimum=1, maximum=3), pods_per_node=1)
    simulation.settle(20)
    simulation.hung_nodes.add("node-1")
    simulation.settle(15)
    assert simulation.declared[-1].size == 2
    simulation.hung_nodes.clear()
    simulation.settle(15)
    assert simulation.declared[-1].size == 3


def test_a_pod_that_was_just_put_on_the_dead_node_is_made_anew() -> None:
    simulation = Simulation(a_job(replicas=3, minimum=1, maximum=4))
    simulation.settle(20)
    simulation.scale(4)
    simulation.reconcile()
    simulation.schedule()
    [newcomer] = [pod for pod in simulation.pods.values() if not pod.started]
    simulation.hung_nodes.add(newcomer.node)
    simulation.settle(30)
    assert simulation.declared[-1].size == 4
    assert newcomer.name not in simulation.declared[-1].workers


def test_suspicion_does_not_exclude_the_only_node_that_fits() -> None:
    nodes = {name: NodeView(name, labels={"gpu": "yes"} if name == "node-1" else {}) for name in ("node-0", "node-1")}
    todo = plan(a_job(replicas=2, template=TEMPLATE), group(nodes=nodes), Memory())
    assert [action for action in todo.actions if isinstance(action, CreatePod)] == [CreatePod(1, unwanted=("node-1",))]


def test_suspicion_gives_way_where_the_other_nodes_are_full() -> None:
    nodes = {name: NodeView(name) for name in ("node-0", "node-1")}
    simulation = Simulation(a_job(replicas=3, minimum=1, maximum=3), nodes=nodes, pods_per_node=2)
    simulation.settle(20)
    assert [pod.node for pod in simulation.pods.values()].count("node-1") == 1
    simulation.hung_nodes.add("node-1")
    simulation.settle(10)
    [replacement] = [pod for pod in simulation.pods.values() if not pod.started]
    assert replacement.node == "node-1"
    made = simulation.made
    simulation.settle(30)
    assert simulation.made == made == 5, "one that kept away, and one that waits where alone there is room"
    simulation.hung_nodes.clear()
    simulation.settle(10)
    assert simulation.declared[-1].size == 3


async def test_replacement_is_made_as_it_was_decided() -> None:
    cluster = FakeCluster()
    executor = Executor(cluster, Cache(), AgentSettings("http://operator"))
    (write,) = executor.writes(a_job(), [CreatePod(0, ("node-1",), unwanted=("node-2",))])
    await write.send()
    view = view_pod(cluster.pods()[0], seen_at=NOW)
    assert (view.avoids, view.prefers_others_to) == ({"node-1"}, {"node-2"})
