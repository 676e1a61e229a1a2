"""A smaller group that runs out of memory: whose fault that is, what the job waits for, and until when."""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.failure import Fault, record_of
from elastic_pytorch_operator.model.observed import AgentView, NodeView, Progress
from elastic_pytorch_operator.planning.failures.memory_fit import FIRST_STEPS, MemoryFit, judge_size, recall_fit
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure
from elastic_pytorch_operator.planning.target import Target

from tests.operator.builders import a_failure, a_job, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation, running

CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"


def judged(message: str, *, steps: int = 0, size: int = 2, fits: int = 4, wanted: int = 4, **fields: Any) -> tuple[int, Fault]:
    """The size that is waited for then, and whose fault the failure is."""
    progress = Progress(step=100 + steps, first_step=101) if steps else Progress()
    failed = an_agent("w1", "failed", failure=a_failure(message, **fields), progress=progress)
    seen = observed([a_pod(i) for i in range(size)], [an_agent("w0"), failed], round=a_round(*range(size)))
    cause = record_of(failed)
    fit, failure = judge_size(MemoryFit(fits), Target(wanted), seen, RoundFailure(cause=cause))
    assert failure.cause is not None
    assert failure.cause.message.endswith(cause.message)
    return fit.needed, failure.cause.fault


WAITS, COUNTS = (4, Fault.SIZE), (0, Fault.CODE)


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        (CUDA, WAITS),
        ("torch.cuda.OutOfMemoryError: HIP out of memory.", WAITS),
        ("OutOfMemoryError: XPU out of memory.", WAITS),
        ("RuntimeError: CUDA error: out of memory", WAITS),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", WAITS),
        ("ValueError: boom", COUNTS),
        ("RuntimeError: CUDA error: device-side assert triggered", COUNTS),
        ("MyOutOfMemoryErrors: none", COUNTS),
    ],
)
def test_words(message: str, outcome: tuple[int, Fault]) -> None:
    assert judged(message) == outcome


def test_process_that_the_kernel_has_killed_for_lack_of_memory() -> None:
    assert judged("killed", exception="OutOfMemory", signal="SIGKILL", exit_code=137) == WAITS


@pytest.mark.parametrize(
    ("situation", "fields", "outcome"),
    [
        ("in the last of the first steps", {"steps": FIRST_STEPS}, WAITS),
        ("later", {"steps": FIRST_STEPS + 1}, COUNTS),
        ("a group of this size has trained", {"fits": 2}, COUNTS),
        ("a smaller one has", {"fits": 1}, COUNTS),
        ("none has trained yet", {"fits": 0}, COUNTS),
        ("fewer workers are asked for than have trained", {"wanted": 3}, COUNTS),
    ],
)
def test_situation(situation: str, fields: dict[str, int], outcome: tuple[int, Fault]) -> None:
    assert judged(CUDA, **fields) == outcome, situation


@pytest.mark.parametrize(
    ("before", "steps", "of_round", "after"),
    [(0, FIRST_STEPS, 1, 0), (0, FIRST_STEPS + 1, 1, 2), (4, FIRST_STEPS + 1, 1, 2), (1, FIRST_STEPS + 1, 1, 1), (0, 99, 0, 0)],
)
def test_smallest_group_that_has_trained_is_known(before: int, steps: int, of_round: int, after: int) -> None:
    agent = replace(an_agent("w0", progress=Progress(step=6 + steps, first_step=7)), round=of_round)
    seen = observed([a_pod(0), a_pod(1)], [agent], round=a_round(0, 1))
    assert judge_size(MemoryFit(before), Target(3), seen, RoundFailure()) == (MemoryFit(after), RoundFailure())


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ({}, MemoryFit()),
        ({"operatorState": {"neededReplicas": 6}, "observedGeneration": 1}, MemoryFit(6, 6)),
        ({"operatorState": {"neededReplicas": 6}, "observedGeneration": 0}, MemoryFit(6, 0)),
    ],
)
def test_new_leader_reads_it_from_the_status_of_this_spec(status: dict[str, Any], known: MemoryFit) -> None:
    assert recall_fit(replace(a_job(status=status), generation=1)) == known


def trains(simulation: Simulation, steps: int) -> None:
    """All members report their steps in the current round."""
    for name in simulation.members:
        agent: AgentView = simulation.agents[name]
        progress = Progress(step=100 + steps, first_step=101)
        simulation.agents[name] = replace(agent, progress=progress, progressed_at=simulation.now)
    simulation.settle(1)


def out_of_memory() -> Simulation:
    """Six train; two are lost with their node, and the four others have too little memory."""
    simulation = running(replicas=6, minReplicas=1, maxReplicas=6, failurePolicy={"maxFailures": 0})
    trains(simulation, 50)
    simulation.nodes["node-2"] = NodeView("node-2", ready=False)
    simulation.hung_nodes.add("node-2")
    for name in [name for name, pod in simulation.pods.items() if pod.node == "node-2"]:
        simulation.agents.pop(name)
    while len(simulation.members) != 4:
        simulation.settle(0.5)
    first, *others = simulation.members
    simulation.fail_worker(first, CUDA)
    for name in others:
        simulation.fail_worker(name)
    simulation.settle(20)
    return simulation


def message(simulation: Simulation) -> str:
    return (find_condition(simulation.job.status, "Running") or {})["message"]


def node_returns(simulation: Simulation) -> None:
    simulation.hung_nodes.clear()
    simulation.nodes["node-2"] = NodeView("node-2")
    simulation.settle(30)


def test_group_waits_for_the_size_that_has_trained_and_the_failure_does_not_count() -> None:
    simulation = out_of_memory()
    status = simulation.job.status
    assert (status["state"], status["failures"], status["operatorState"]["neededReplicas"], simulation.members) == (
        "Pending",
        0,
        6,
        (),
    )
    assert "4 of 6 workers are ready; training needs 6; a smaller group than 6 workers has run out of memory" in message(
        simulation
    )
    assert "4 workers are too few, 6 were enough: torch.OutOfMemoryError" in status["rootCause"]["message"]
    declared = simulation.declared[-1]
    assert (declared.reason, declared.size) == ("BelowMinimum", 0)
    assert "run out of memory in its first steps" in declared.cause
    node_returns(simulation)
    assert len(simulation.members) == 6


def test_another_leader_waits_on() -> None:
    simulation = out_of_memory()
    simulation.restart_operator()
    simulation.settle(30)
    assert (simulation.members, simulation.job.status["operatorState"]["neededReplicas"]) == ((), 6)
    node_returns(simulation)
    assert len(simulation.members) == 6
    assert simulation.job.status["failures"] == 0


def test_new_spec_is_tried_with_what_there_is() -> None:
    simulation = out_of_memory()
    simulation.scale(5)
    simulation.settle(30)
    assert len(simulation.members) == 4
    assert "neededReplicas" not in simulation.job.status["operatorState"]
    simulation.fail_worker(simulation.members[0], CUDA)
    simulation.settle(5)
    assert simulation.job.status["state"] == "Failed"
    assert "4 workers are too few, 6 were enough" in (find_condition(simulation.job.status, "Failed") or {})["message"]
