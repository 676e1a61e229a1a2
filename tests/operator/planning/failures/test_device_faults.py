"""Devices that have failed a worker, or are unhealthy: the worker moves, and the job pays nothing for it."""

from dataclasses import replace

from elastic_pytorch_operator.model.failure import DEVICE_FAULT
from elastic_pytorch_operator.model.observed import AgentState, AgentView
from elastic_pytorch_operator.planning.failures.device_faults import (
    AVOID_SECONDS,
    NO_DEVICE_FAULTS,
    DeviceFaults,
    displaced_by_faults,
    doubtful_nodes,
    find_device_faults,
)

from tests.operator.builders import NOW, a_dead_pod, a_failure, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation, running

ECC = "a device has failed (an uncorrectable ECC error): AcceleratorError: CUDA error: uncorrectable ECC error encountered"


def failed(worker: str, exception: str = DEVICE_FAULT) -> AgentView:
    return an_agent(worker, "failed", failure=a_failure(ECC, exception=exception))


def test_node_and_worker_are_remembered() -> None:
    pods = [a_pod(0), a_pod(1, node="node-1")]
    seen = observed(pods, [an_agent("w0"), failed("w1")], round=a_round(0, 1))
    found = find_device_faults(NO_DEVICE_FAULTS, seen)
    assert found == DeviceFaults({"node-1": NOW}, frozenset({"w1"}))
    assert displaced_by_faults(found, seen) == frozenset(), "its round is judged first"
    later = observed(pods, [an_agent("w0"), an_agent("w1", "ready", 0)], round=a_round(0))
    assert find_device_faults(found, later) == found
    assert displaced_by_faults(found, later) == {"w1"}


def test_node_is_forgotten_after_half_an_hour_and_the_worker_with_its_pod() -> None:
    known = DeviceFaults({"node-1": NOW - AVOID_SECONDS - 1, "node-2": NOW - AVOID_SECONDS}, frozenset({"w1"}))
    assert find_device_faults(known, observed([a_pod(0)])) == DeviceFaults({"node-2": NOW - AVOID_SECONDS})


def test_other_failures_say_nothing_of_devices() -> None:
    agents = [failed("w0", "RuntimeError"), an_agent("w1", "failed", failure=None)]
    assert find_device_faults(NO_DEVICE_FAULTS, observed([a_pod(0), a_pod(1)], agents)) == NO_DEVICE_FAULTS


def test_doubtful_nodes_are_those_of_faults_and_of_unhealthy_devices() -> None:
    pods = [a_pod(0, unhealthy="nvidia.com/gpu", node="node-2"), a_dead_pod(1, unhealthy="nvidia.com/gpu", node="node-0")]
    assert doubtful_nodes(DeviceFaults({"node-1": NOW}), observed(pods)) == {"node-1", "node-2"}


# In the course of a job.


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
    simulation.settle(20)
    assert [round_.size for round_ in simulation.declared] == [3, 2, 3]
    assert all(simulation.pods[name].node != node for name in simulation.members)
    assert worker not in simulation.pods
    assert (simulation.job.status["state"], simulation.job.status["failures"]) == ("Running", 0)


def test_failure_names_the_device() -> None:
    simulation = running(replicas=3)
    break_device(simulation, simulation.members[1])
    simulation.settle(0.25)
    assert "a device has failed (an uncorrectable ECC error)" in simulation.declared[-1].cause


def test_only_node_that_fits_is_used_again() -> None:
    simulation = running(replicas=3, minimum=1)
    simulation.pods_per_node = 1
    break_device(simulation, simulation.members[1])
    simulation.settle(60)
    assert simulation.declared[-1].size == 3


def test_device_that_fails_again_on_the_same_node_counts() -> None:
    simulation = running(replicas=1, failurePolicy={"maxFailures": 1})
    simulation.nodes = {
        name: node for name, node in simulation.nodes.items() if name == simulation.pods[simulation.members[0]].node
    }
    for failures in (0, 1, 2):
        break_device(simulation, simulation.members[0])
        simulation.settle(30)
        assert simulation.job.status["failures"] == failures
    assert simulation.job.status["state"] == "Failed"
    assert "a device has failed" in simulation.job.status["rootCause"]["message"]


def test_worker_with_an_unhealthy_device_leaves_when_its_replacement_is_ready() -> None:
    simulation = running(replicas=3)
    worker = simulation.members[1]
    simulation.pods[worker] = replace(simulation.pods[worker], unhealthy="nvidia.com/gpu")
    simulation.settle(0.25)
    told = next(c["message"] for c in simulation.job.status["conditions"] if c["type"] == "Resizing")
    assert "where a device of its own is unhealthy (nvidia.com/gpu), as soon as its replacement is ready" in told
    node = simulation.pods[worker].node
    simulation.settle(20)
    assert [round_.size for round_ in simulation.declared] == [3, 3]
    assert worker not in simulation.pods
    assert all(simulation.pods[name].node != node for name in simulation.members)


def test_worker_whose_device_is_well_again_stays() -> None:
    simulation = running(replicas=3)
    worker = simulation.members[1]
    simulation.pods[worker] = replace(simulation.pods[worker], unhealthy="nvidia.com/gpu")
    simulation.settle(0.5)
    simulation.pods[worker] = replace(simulation.pods[worker], unhealthy="")
    simulation.settle(30)
    assert len(simulation.declared) == 1
    assert worker in simulation.members
    assert all(agent.state is AgentState.RUNNING for agent in simulation.agents.values())
