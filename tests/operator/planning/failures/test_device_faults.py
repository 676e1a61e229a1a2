"""Devices that have failed a worker, or are unhealthy: the worker moves, and the job pays nothing for it."""

from dataclasses import replace

from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.failure import DEVICE_FAULT
from elastic_pytorch_operator.model.observed import AgentState, AgentView
from elastic_pytorch_operator.planning.failures.device_faults import (
    AVOID_SECONDS,
    MOST_REPORTED,
    NO_DEVICE_FAULTS,
    DeviceFaults,
    displaced_by_faults,
    doubtful_nodes,
    find_device_faults,
    leaving_faults,
)

from tests.operator.builders import NOW, a_dead_pod, a_failure, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation, running

XID = "GPU 3 reported Xid 79: the GPU has fallen off the bus"
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


def test_node_of_a_broken_device_is_avoided_for_half_an_hour_after_its_worker_has_left() -> None:
    seen = observed([a_pod(0), a_pod(1, node="node-1")], [an_agent("w0"), an_agent("w1", device_fault=XID)])
    found = find_device_faults(NO_DEVICE_FAULTS, seen)
    assert found == DeviceFaults(reported={"node-1": NOW})
    assert leaving_faults(found, seen) == {"w1": f"leaves node node-1, where {XID}"}
    assert doubtful_nodes(found, seen) == {"node-1"}
    later = find_device_faults(found, observed([a_pod(0)], [an_agent("w0")]))
    assert (later.reported, leaving_faults(later, observed([a_pod(0)], [an_agent("w0")]))) == ({"node-1": NOW}, {})
    old = DeviceFaults(reported={"node-1": NOW - AVOID_SECONDS - 1})
    assert find_device_faults(old, observed([a_pod(0)], [an_agent("w0")])) == NO_DEVICE_FAULTS


def test_other_worker_on_the_node_of_a_broken_device_stays() -> None:
    seen = observed([a_pod(0), a_pod(1)], [an_agent("w0"), an_agent("w1", device_fault=XID)])
    assert set(leaving_faults(find_device_faults(NO_DEVICE_FAULTS, seen), seen)) == {"w1"}


def test_job_that_breaks_each_device_moves_from_few_nodes() -> None:
    pods = [a_pod(number, node=f"node-{number}") for number in range(MOST_REPORTED + 3)]
    seen = observed(pods, [an_agent(pod.name, device_fault=XID) for pod in pods])
    found = find_device_faults(NO_DEVICE_FAULTS, seen)
    assert len(found.reported) == len(leaving_faults(found, seen)) == MOST_REPORTED
    assert find_device_faults(found, seen) == found


def test_pod_that_has_ended_reports_no_device() -> None:
    seen = observed([a_dead_pod(0)], [an_agent("w0", device_fault=XID)])
    assert find_device_faults(NO_DEVICE_FAULTS, seen) == NO_DEVICE_FAULTS


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


def report_device(simulation: Simulation, worker: str) -> None:
    simulation.agents[worker] = replace(simulation.agents[worker], device_fault=XID)


def test_worker_with_a_broken_device_leaves_when_its_replacement_is_ready() -> None:
    simulation = running(replicas=3, failurePolicy={"maxFailures": 0})
    worker = simulation.members[1]
    node = simulation.pods[worker].node
    report_device(simulation, worker)
    simulation.reconcile()
    [event] = [action for action in simulation.last.actions if isinstance(action, RecordEvent)]
    assert (event.reason, event.note) == ("NodeEnding", f"{worker} leaves node {node}, where {XID}")
    told = next(c["message"] for c in simulation.job.status["conditions"] if c["type"] == "Resizing")
    assert f"{worker} leaves node {node}, where {XID}, as soon as its replacement is ready" in told
    simulation.settle(20)
    assert [round_.size for round_ in simulation.declared] == [3, 3]
    assert all(simulation.pods[name].node != node for name in simulation.members)
    assert (simulation.job.status["state"], simulation.job.status["failures"]) == ("Running", 0)


def test_device_that_is_reported_and_then_fails_its_worker_does_not_count() -> None:
    simulation = running(replicas=3, failurePolicy={"maxFailures": 0})
    worker = simulation.members[1]
    report_device(simulation, worker)
    simulation.settle(0.5)
    break_device(simulation, worker)
    simulation.settle(30)
    assert simulation.members.count(worker) == 0
    assert [round_.size for round_ in simulation.declared][-1] == 3
    assert (simulation.job.status["state"], simulation.job.status["failures"]) == ("Running", 0)


def test_worker_with_a_broken_device_trains_on_where_there_is_no_other_node() -> None:
    simulation = running(replicas=3, minimum=1)
    simulation.pods_per_node = 1
    report_device(simulation, simulation.members[1])
    simulation.settle(300)
    assert [round_.size for round_ in simulation.declared] == [3]


def test_new_leader_hears_of_a_broken_device_again() -> None:
    simulation = running(replicas=3)
    worker = simulation.members[1]
    simulation.pods_per_node = 1
    report_device(simulation, worker)
    simulation.settle(5)
    simulation.restart_operator()
    simulation.pods_per_node = 2
    simulation.settle(60)
    assert worker not in simulation.members
    assert simulation.declared[-1].size == 3


def test_job_whose_each_device_is_reported_moves_a_few_times_and_trains_on() -> None:
    simulation = running(replicas=1)
    for number in range(3, 12):
        simulation.nodes[f"node-{number}"] = replace(simulation.nodes["node-0"], name=f"node-{number}")
    for _ in range(60):
        for name in simulation.members:
            report_device(simulation, name)
        simulation.settle(10)
    assert len(simulation.declared) == 1 + MOST_REPORTED
    assert simulation.job.status["state"] == "Running"
