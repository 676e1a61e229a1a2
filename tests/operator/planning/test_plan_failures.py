from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import recorded_cause
from elastic_pytorch_operator.model.observed import NodeView

from tests.operator.builders import a_job, fields_of
from tests.operator.simulation import Simulation, running
from tests.operator.spec.test_failure_rules import DISRUPTED
from tests.situations import situations


def test_peer_errors_of_lost_workers_never_fail_the_job() -> None:
    simulation = running(failurePolicy={"maxFailures": 0})
    for _ in range(5):
        lost, *others = simulation.members
        simulation.delete_pod(lost, force=True)
        for worker in others:
            simulation.fail_worker(worker)
        simulation.settle(10)
    assert simulation.status["state"] == "Running"
    assert simulation.status["failures"] == 0


def test_script_that_fails_after_a_saved_step_of_each_start_fails_the_job() -> None:
    simulation = running(failurePolicy={"maxFailures": 3})
    for step in range(1, 9):
        simulation.make_progress(step, checkpoint_step=step)
        simulation.settle(20)
        if simulation.status["state"] == "Failed":
            break
        simulation.fail_worker(
            simulation.members[0], "RuntimeError: two States are committed in turns", exit_code=1
        )
        simulation.settle(20)
    assert simulation.status["state"] == "Failed"
    assert "two States" in simulation.condition("Failed")["message"]


FOR_THE_NODE = frozenset({DISRUPTED})
FULL_VOLUME = {
    "exit_reason": "Evicted",
    "exit_message": "Usage of EmptyDir volume exceeds the limit",
}


@situations(
    "end, progress, state",
    {
        "memory volume": (FULL_VOLUME, 0, "Failed"),
        "deadline": (
            {
                "exit_reason": "DeadlineExceeded",
                "exit_message": "Pod was active longer than the deadline",
            },
            0,
            "Failed",
        ),
        "probe": ({"exit_reason": "Error", "exit_message": "the end of its log"}, 0, "Failed"),
        "with progress": (FULL_VOLUME, 100, "Running"),
        "for the node": (
            {"exit_reason": "Evicted", "exit_message": "low on memory", "conditions": FOR_THE_NODE},
            0,
            "Running",
        ),
    },
)
def test_end_from_outside_fails_the_job_if_it_repeats_without_progress(
    end: dict[str, Any], progress: int, state: str
) -> None:
    simulation = running(failurePolicy={"maxFailures": 3})
    for number in range(6):
        simulation.make_progress(number * progress)
        simulation.settle(2)
        pod = next(
            (pod for pod in simulation.pods.values() if pod.index == 1 and pod.started), None
        )
        if pod is None or simulation.status["state"] == "Failed":
            break
        simulation.end_pod(pod.name, exit_code=137)
        disrupted = "conditions" in end
        simulation.pods[pod.name] = replace(simulation.pods[pod.name], **end, disrupted=disrupted)
        simulation.settle(20)
    assert simulation.status["state"] == state
    told = simulation.condition("Failed")
    assert (end["exit_message"] in told["message"]) == (state == "Failed")
    assert (end["exit_message"] in str(simulation.status.get("rootCause"))) == (
        "conditions" not in end
    )


NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, "
    "NCCL version 2.27.5\n"
)
DUPLICATE = (
    NCCL + "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
    "Duplicate GPU detected : rank 0"
)
NO_SPACE = (
    NCCL + "ncclSystemError: System call (e.g. socket, malloc) "
    "or external library call failed or device error. \nLast error:\nError while "
    "creating shared memory segment /dev/shm/nccl-jc5XcA (size 9637888)"
)
NO_INTERFACE = (
    NCCL + "ncclInternalError: Internal check failed.\nLast error:\nBootstrap : "
    "no socket interface found"
)
REMOTE = (
    NCCL + "ncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely."
)
NO_MESH = "RuntimeError: Gloo connectFullMesh failed with SO_ERROR: Connection refused"


@pytest.mark.parametrize("message", [DUPLICATE, NO_SPACE, NO_INTERFACE, REMOTE, NO_MESH])
def test_error_of_the_set_up_that_all_ranks_find_at_once_fails_the_job(message: str) -> None:
    simulation = running(replicas=3)
    began = simulation.now
    while simulation.status["state"] != "Failed" and simulation.now < began + 120:
        for worker in simulation.members:
            simulation.fail_worker(worker, message)
        simulation.settle(0.25)
    told = simulation.condition("Failed")
    assert told["reason"] == "TooManyFailures"
    assert f"rank 0 (w0-1) failed, exit code 1: {message}" in told["message"]
    assert simulation.status["rootCause"]["message"] == message
    assert len(simulation.declared) == 4, "one round for each failure that maxFailures allows"
    assert simulation.now - began >= 3, "it waits 1 and 2 seconds between them"


def test_cause_is_told_with_its_process_its_node_and_the_time_and_is_not_written_again() -> None:
    simulation = running(replicas=2, failurePolicy={"maxFailures": 9})
    worker = simulation.members[1]
    node = simulation.pods[worker].node
    simulation.fail_worker(worker, "ValueError: boom", pid=57)
    simulation.now += 61
    for name, agent in simulation.agents.items():
        simulation.agents[name] = replace(agent, heard_at=simulation.now)
    simulation.settle(0.25)
    cause = simulation.status["rootCause"]
    assert {name: cause[name] for name in ("worker", "node", "pid", "time")} == {
        "worker": worker,
        "node": node,
        "pid": 57,
        "time": "2025-12-31T23:58:58Z",
    }
    simulation.settle(30)
    assert simulation.status["rootCause"] == cause
    recorded = recorded_cause(simulation.status)
    assert recorded is not None
    assert recorded.as_status() == cause


def test_failure_is_not_counted_again_by_a_new_leader_and_the_pause_goes_on() -> None:
    simulation = running(failurePolicy={"maxFailures": 9})
    for _ in range(4):
        simulation.settle(0.5)
        for worker in simulation.members:
            simulation.fail_worker(worker, "ValueError: boom")
        simulation.settle(0.5)
    counted, rounds = simulation.status["failures"], len(simulation.declared)
    simulation.restart_operator()
    simulation.reconcile()
    assert simulation.status["failures"] == counted
    assert len(simulation.declared) == rounds, "the pause goes on"
    simulation.settle(30)
    assert fields_of(simulation.status, "failures", "state") == (counted, "Running")


def test_node_that_rejects_pods_costs_nothing_and_is_left_after_two() -> None:
    simulation = running(replicas=3, failurePolicy={"maxFailures": 0})
    simulation.nodes["node-3"] = NodeView("node-3")
    simulation.rejecting_nodes.add("node-3")
    simulation.kill_pod(simulation.members[2])
    simulation.settle(30)
    status = simulation.status
    assert fields_of(status, "state", "worldSize", "failures") == ("Running", 3, 0)
    assert simulation.made <= 3 + 3


def test_pods_that_are_always_rejected_are_made_at_a_growing_pace() -> None:
    simulation = Simulation(a_job(replicas=1, failurePolicy={"maxFailures": 0}))
    simulation.rejecting_nodes.update(simulation.nodes)
    simulation.settle(300)
    assert simulation.status["state"] == "Pending"
    assert 6 <= simulation.made <= 15
    made = simulation.made
    simulation.restart_operator()
    simulation.settle(55)
    assert simulation.made <= made + 1, "the pause is as long for a new leader"
    message = simulation.condition("Running")["message"]
    assert "UnexpectedAdmissionError" in message


@pytest.mark.parametrize("exit_code", [0, 1])
def test_command_that_never_joins_fails_the_job(exit_code: int) -> None:
    simulation = Simulation(a_job(failurePolicy={"maxFailures": 0}))
    simulation.settle(1)
    simulation.end_pod(next(iter(simulation.pods)), exit_code=exit_code)
    simulation.reconcile()
    told = simulation.condition("Failed")
    assert told["reason"] == "NeverJoined"
    assert 'args: ["train.py"]' in told["message"]
    assert "torchrun" in told["message"]


@pytest.mark.parametrize("apart_seconds", [0.0, 0.5, 2.0])
def test_pods_that_end_with_exit_code_0_without_success_fail_the_job(apart_seconds: float) -> None:
    """As of a shell that hides how torchrun has ended."""
    simulation = running(failurePolicy={"maxFailures": 1})
    began = simulation.now
    while simulation.status["state"] not in ("Failed", "Complete") and simulation.now < began + 120:
        for worker in simulation.members:
            if not simulation.pods[worker].ended:
                simulation.end_pod(worker, exit_code=0, reason="Completed")
            simulation.settle(apart_seconds)
        simulation.settle(0.25)
    assert simulation.status["state"] == "Failed"
    assert simulation.status["failures"] == 2
    assert "its agent has not reported success" in simulation.condition("Failed")["message"]


def test_worker_whose_process_outlives_sigkill_is_replaced() -> None:
    simulation = running(replicas=2)
    wedged = simulation.members[0]
    simulation.wedged.add(wedged)
    simulation.fail_worker(simulation.members[1], "ValueError: boom")
    simulation.settle(50)
    assert wedged in simulation.members, "its grace period and a margin"
    simulation.settle(30)
    assert wedged not in simulation.pods
    assert fields_of(simulation.status, "state", "worldSize") == ("Running", 2)
    lost = next(declared for declared in simulation.declared if wedged in declared.cause)
    assert "has not stopped its workers for 60 s: a process outlives SIGKILL" in lost.cause
