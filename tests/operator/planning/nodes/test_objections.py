import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Certainty
from elastic_pytorch_operator.model.failure import DEVICE_FAULT
from elastic_pytorch_operator.model.observed import (
    AgentState,
    AgentView,
    NodeView,
    Observed,
    PodView,
)
from elastic_pytorch_operator.planning.failures.start_backoff import find_failed_starts
from elastic_pytorch_operator.planning.nodes.objections import (
    DEVICE_FAILED,
    DEVICE_UNHEALTHY,
    ENDS,
    ENDS_LATER,
    MAY_END,
    STARTS_FAILED,
    SUSPECTED,
    TABLE,
    Cause,
    Objection,
    displaced_workers,
    failed_again,
    find_objections,
)
from elastic_pytorch_operator.planning.workers.liveness import assess_workers

from tests.operator.builders import (
    NOW,
    TIME,
    a_dead_pod,
    a_failure,
    a_job,
    a_pod,
    a_round,
    an_agent,
    observed,
)
from tests.operator.simulation import Simulation, running
from tests.situations import situations

SILENT = NOW - 10
ECC = (
    "a device has failed (an uncorrectable ECC error): AcceleratorError: CUDA error: "
    "uncorrectable ECC error encountered"
)
SURE = AnnouncedEnd("taint spot", Certainty.SURE)


def found(seen: Observed, known: Sequence[Objection] = ()) -> tuple[Objection, ...]:
    since = {each.node: each.since for each in known if each.cause is SUSPECTED}
    return find_objections(
        a_job(), seen, assess_workers(seen, since), find_failed_starts(seen), tuple(known)
    )


def group(heard_at: float = SILENT, *pods: PodView, **fields: Any) -> Observed:
    """Workers 0 and 1 on a node each; the second has not been heard since a moment."""
    there = pods or (a_pod(0), a_pod(1, node="node-1"))
    return observed(
        there,
        [an_agent("w0"), an_agent("w1", heard_at=heard_at)],
        **{"round": a_round(0, 1), **fields},
    )


def unstarted(*pods: PodView) -> Observed:
    return observed(
        [replace(pod, exit_code=None, exit_reason="UnexpectedAdmissionError") for pod in pods]
    )


def failed_on(
    index: int, node: str = "node-0", ago: float = 0, before: tuple[str, ...] = ()
) -> PodView:
    return a_dead_pod(index, node=node, ended_at=NOW - ago, failed_starts=before)


def broken(*workers: str, exception: str = DEVICE_FAULT) -> list[AgentView]:
    return [
        an_agent(worker, "failed", failure=a_failure(ECC, exception=exception))
        for worker in workers
    ]


def since(cause: Cause, ago: float, node: str = "node-1", worker: str = "") -> Objection:
    return Objection(node, cause, NOW - ago, NOW - ago + cause.at_most_seconds, worker)


def ending(end: AnnouncedEnd) -> Observed:
    return observed([a_pod(1, node="node-1")], nodes={"node-1": NodeView("node-1", end=end)})


def dated(seconds: float) -> AnnouncedEnd:
    at = (datetime.fromisoformat(TIME) + timedelta(seconds=seconds)).astimezone(UTC).isoformat()
    return AnnouncedEnd("label", Certainty.DATED, at=at)


def seeing(seen: Observed, *known: Objection) -> tuple[Observed, tuple[Objection, ...]]:
    return seen, known


TWO = (a_pod(0, node="node-1"), a_pod(1, node="node-1"))
NOT_READY = {"node-0": NodeView("node-0"), "node-1": NodeView("node-1", ready=False)}
DIED = a_dead_pod(1, node="node-1")
UNHEALTHY = {"unhealthy": "nvidia.com/gpu"}


@situations(
    "given, says",
    {
        "a worker is lost while its pod claims to run": (seeing(group()), [since(SUSPECTED, 0)]),
        "it speaks": (seeing(group(NOW)), []),
        "its node has not been seen yet": (seeing(group(nodes={})), [since(SUSPECTED, 0)]),
        "its kubelet tells of the end": (seeing(group(SILENT, a_pod(0), DIED)), []),
        "its node is known to be lost": (seeing(group(nodes=NOT_READY), since(SUSPECTED, 1)), []),
        "the suspicion lasts": (seeing(group(), since(SUSPECTED, 5)), [since(SUSPECTED, 5)]),
        "until somebody speaks there": (seeing(group(NOW - 1), since(SUSPECTED, 5)), []),
        "or for 90 s": (seeing(group(NOW - 101), since(SUSPECTED, 91)), []),
        "it outlasts the deletion of the lost pod": (
            seeing(
                group(SILENT, a_pod(0), a_pod(1, node="node-1", deleting=True), round=a_round(0)),
                since(SUSPECTED, 5),
            ),
            [since(SUSPECTED, 5)],
        ),
        "one pod has failed to start": (seeing(unstarted(failed_on(0))), []),
        "two have": (
            seeing(unstarted(failed_on(0, ago=9), failed_on(1, ago=5))),
            [since(STARTS_FAILED, 5, "node-0")],
        ),
        "two of one index have": (
            seeing(unstarted(failed_on(0, before=("node-0",)))),
            [since(STARTS_FAILED, 0, "node-0")],
        ),
        "two have, on a node each": (seeing(unstarted(failed_on(0), failed_on(1, "node-1"))), []),
        "two have, long ago": (seeing(unstarted(failed_on(0, ago=601), failed_on(1, ago=601))), []),
        "a device has failed a worker": (
            seeing(observed(TWO, broken("w1"))),
            [since(DEVICE_FAILED, 0, worker="w1")],
        ),
        "a worker has failed without its device": (
            seeing(observed(TWO, broken("w0", exception="RuntimeError"))),
            [],
        ),
        "its failure is one failure": (
            seeing(observed(TWO, broken("w1")), since(DEVICE_FAILED, 60, worker="w1")),
            [since(DEVICE_FAILED, 60, worker="w1")],
        ),
        "it holds for half an hour": (
            seeing(
                observed(TWO),
                since(DEVICE_FAILED, 1800, worker="w1"),
                since(DEVICE_FAILED, 1801, worker="w2"),
            ),
            [since(DEVICE_FAILED, 1800, worker="w1")],
        ),
        "a device is unhealthy": (
            seeing(
                observed([a_pod(1, node="node-1", **UNHEALTHY), a_dead_pod(0, **UNHEALTHY)]),
                since(DEVICE_UNHEALTHY, 5, worker="w1"),
            ),
            [since(DEVICE_UNHEALTHY, 0, worker="w1")],
        ),
        "the node may end": (
            seeing(ending(replace(SURE, certainty=Certainty.SOFT))),
            [since(MAY_END, 0)],
        ),
        "it ends: 30 s are for the pod": (
            seeing(ending(SURE)),
            [Objection("node-1", ENDS, NOW, NOW + 90)],
        ),
        "its end comes nearer": (
            seeing(ending(SURE), Objection("node-1", ENDS, NOW - 80, NOW + 10)),
            [Objection("node-1", ENDS, NOW - 80, NOW + 10)],
        ),
        "a sooner end is announced: half of the notice is for the pod": (
            seeing(
                ending(replace(SURE, notice_seconds=30)),
                Objection("node-1", ENDS, NOW - 80, NOW + 100),
            ),
            [Objection("node-1", ENDS, NOW - 80, NOW + 15)],
        ),
        "it ends now": (
            seeing(ending(replace(SURE, notice_seconds=0))),
            [Objection("node-1", ENDS, NOW, NOW)],
        ),
        "it reports a fault": (
            seeing(ending(replace(SURE, notice_seconds=math.inf, fault=True))),
            [since(ENDS, 0)],
        ),
        "it ends in an hour": (
            seeing(ending(dated(3600))),
            [Objection("node-1", ENDS_LATER, NOW, NOW + 3000)],
        ),
        "it ends in ten minutes": (
            seeing(ending(dated(600))),
            [Objection("node-1", ENDS, NOW, NOW + 570)],
        ),
        "its time is just over": (
            seeing(ending(dated(-60))),
            [Objection("node-1", ENDS, NOW, NOW)],
        ),
        "its time is long over": (seeing(ending(dated(-7200))), []),
        "it ends, and no pod is left there": (
            seeing(observed([DIED], nodes={"node-1": NodeView("node-1", end=SURE)})),
            [],
        ),
    },
)
def test_what_speaks_against_nodes(
    given: tuple[Observed, tuple[Objection, ...]], says: list[Objection]
) -> None:
    assert list(found(*given)) == says


def test_worker_whose_device_has_failed_is_displaced_once_its_round_is_judged() -> None:
    member = observed(TWO, [an_agent("w0"), *broken("w1")], round=a_round(0, 1))
    failed = found(member)
    assert displaced_workers(failed, member) == set()
    assert displaced_workers(failed, replace(member, round=a_round(0))) == {"w1"}


@pytest.mark.parametrize(("earlier", "again"), [([], []), (["w9"], ["w0", "w1"])])
def test_device_fails_again_where_one_had_failed_before(
    earlier: list[str], again: list[str]
) -> None:
    known = [since(DEVICE_FAILED, 60, worker=worker) for worker in earlier]
    assert failed_again(found(observed(TWO, broken("w0", "w1")), known)) == {*again}


def test_rows_differ() -> None:
    assert len({row.known for row in TABLE}) == len(TABLE)
    assert all(math.isinf(row.at_most_seconds) is not bool(row.since) for row in TABLE), (
        "seconds count from something"
    )


# In the course of a job.


def test_replacement_goes_elsewhere_although_the_dead_node_is_the_emptiest() -> None:
    simulation = running(replicas=3, minimum=1, maximum=3)
    simulation.hung_nodes.add("node-1")
    simulation.settle(15)
    assert simulation.sizes == [3, 2, 3]
    assert all(
        simulation.pods[worker].node != "node-1" for worker in simulation.declared[-1].workers
    )


def test_a_pod_that_was_just_put_on_the_dead_node_is_made_again() -> None:
    simulation = running(replicas=3, minimum=1, maximum=4)
    simulation.scale(4)
    simulation.reconcile()
    simulation.schedule()
    [newcomer] = [pod for pod in simulation.pods.values() if not pod.started]
    simulation.hung_nodes.add(newcomer.node)
    simulation.settle(30)
    assert simulation.declared[-1].size == 4
    assert newcomer.name not in simulation.declared[-1].workers


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
    assert simulation.made == made == 5, (
        "one that kept away, and one that waits where alone there is room"
    )
    simulation.hung_nodes.clear()
    simulation.settle(10)
    assert simulation.declared[-1].size == 3


def break_device(simulation: Simulation, worker: str) -> None:
    simulation.fail_worker(worker, ECC, exception=DEVICE_FAULT)
    for other in simulation.members:
        simulation.fail_worker(other)


def test_worker_whose_device_fails_moves_and_nothing_counts() -> None:
    simulation = running(replicas=3, failurePolicy={"maxFailures": 0})
    worker = simulation.members[1]
    node = simulation.pods[worker].node
    break_device(simulation, worker)
    simulation.settle(0.25)
    assert worker not in simulation.members
    assert simulation.declared[-1].reason == "WorkerFailed"
    assert "a device has failed (an uncorrectable ECC error)" in simulation.declared[-1].cause
    simulation.settle(20)
    assert simulation.sizes == [3, 2, 3]
    assert all(simulation.pods[name].node != node for name in simulation.members)
    assert worker not in simulation.pods
    assert (simulation.status["state"], simulation.status["failures"]) == ("Running", 0)


def test_device_that_fails_again_on_the_same_node_counts() -> None:
    simulation = running(replicas=1, failurePolicy={"maxFailures": 1})
    only = simulation.pods[simulation.members[0]].node
    simulation.nodes = {only: simulation.nodes[only]}
    for failures in (0, 1, 2):
        break_device(simulation, simulation.members[0])
        simulation.settle(30)
        assert simulation.status["failures"] == failures
    assert simulation.status["state"] == "Failed"
    assert "a device has failed" in simulation.status["rootCause"]["message"]


def test_worker_with_an_unhealthy_device_leaves_when_its_replacement_is_ready() -> None:
    simulation = running(replicas=3)
    worker = simulation.members[1]
    simulation.pods[worker] = replace(simulation.pods[worker], **UNHEALTHY)
    simulation.settle(0.25)
    assert (
        "where a device of its own is unhealthy (nvidia.com/gpu), "
        "as soon as its replacement is ready" in simulation.condition("Resizing")["message"]
    )
    node = simulation.pods[worker].node
    simulation.settle(20)
    assert simulation.sizes == [3, 3]
    assert worker not in simulation.pods
    assert all(simulation.pods[name].node != node for name in simulation.members)


def test_worker_whose_device_is_well_again_stays() -> None:
    simulation = running(replicas=3)
    worker = simulation.members[1]
    simulation.pods[worker] = replace(simulation.pods[worker], **UNHEALTHY)
    simulation.settle(0.5)
    simulation.pods[worker] = replace(simulation.pods[worker], unhealthy="")
    simulation.settle(30)
    assert len(simulation.declared) == 1
    assert worker in simulation.members
    assert all(agent.state is AgentState.RUNNING for agent in simulation.agents.values())
