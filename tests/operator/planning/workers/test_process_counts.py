from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.planning.workers.process_counts import (
    differs,
    explain_difference,
    processes_each,
)

from tests.operator.builders import a_candidate, a_job, a_pod, a_round, condition, decide_next
from tests.operator.simulation import Simulation
from tests.situations import situations


def candidates(*processes: int, liveness: str = "ready") -> list[Candidate]:
    return [
        a_candidate(i, liveness, local_world_size=number, round=1)
        for i, number in enumerate(processes)
    ]


@situations(
    "members, processes, each",
    {
        "none is ready": ([], [], 0),
        "no agent says": ([], [0, 0], 0),
        "all are alike": ([], [8, 8, 8], 8),
        "most run more": ([], [8, 16, 16], 16),
        "most run fewer": (["w0"], [16, 8, 8], 8),
        "a tie goes to the group": (["w1"], [8, 16], 16),
        "a tie without a group goes to the lowest index": ([], [8, 16], 8),
        "one does not say": ([], [0, 8], 8),
    },
)
def test_number_that_counts(members: list[str], processes: list[int], each: int) -> None:
    assert processes_each(members, candidates(*processes)) == each


def test_only_ready_workers_differ() -> None:
    assert [differs(candidate, 8) for candidate in candidates(8, 16, 0)] == [False, True, False]
    assert not any(differs(candidate, 8) for candidate in candidates(8, 16, liveness="leaving"))


def test_words() -> None:
    pods = {f"w{i}": a_pod(i, node=f"node-{i}") for i in range(15)}
    assert explain_difference([], candidates(8, 8, 8), pods) == ""
    assert explain_difference([], candidates(8, 16, 8), pods) == (
        "left out for the number of processes: w1 on node node-1 runs 16, the others run 8 each; "
        "create the job with a number in "
        "spec.nprocPerNode, or with a nodeSelector for nodes that are alike"
    )
    many = candidates(*[8] * 10, *[16] * 5)
    assert (
        "w12 on node node-12 runs 16 and 2 more pods run another number, the others run 8 each"
        in explain_difference([], many, pods)
    )


@situations(
    "members, processes, wanted, minimum, reason, workers",
    {
        "the first round": ((), [8, 16, 16], 3, 1, "FirstRound", ["w1", "w2"]),
        "the first round waits for the minimum": ((), [8, 16, 16], 3, 3, None, []),
        "a newcomer that differs": ((0, 1), [8, 8, 16], 3, 1, None, []),
        "two newcomers, of which one differs": (
            (0, 1),
            [8, 8, 16, 8],
            4,
            1,
            "WorkerJoined",
            ["w0", "w1", "w3"],
        ),
        "newcomers are more": ((0,), [8, 16, 16], 3, 1, "ProcessesDiffer", ["w1", "w2"]),
        "members that differ": ((0, 1, 2), [8, 16, 16], 3, 1, "ProcessesDiffer", ["w2", "w1"]),
        "members that differ, too few are left": ((0, 1), [8, 16], 2, 2, "BelowMinimum", []),
    },
)
def test_rounds(
    members: tuple[int, ...],
    processes: list[int],
    wanted: int,
    minimum: int,
    reason: str,
    workers: list[str],
) -> None:
    current = a_round(*members) if members else None
    declared = decide_next(current, candidates(*processes), wanted, job={"minimum": minimum}).round
    assert (declared.reason if declared else None) == reason
    assert sorted(declared.workers if declared else ()) == sorted(workers)


def test_worker_on_an_unlike_node_is_left_out_with_words() -> None:
    nodes = {name: NodeView(name) for name in ("node-0", "node-1", "node-2")}
    simulation = Simulation(
        a_job(replicas=3, minimum=2, nprocPerNode="cpu"), nodes, pods_per_node=1
    )
    simulation.processes = {"node-0": 16, "node-1": 8, "node-2": 16}
    simulation.settle(60)
    assert simulation.round is not None
    nodes_of = {simulation.pods[worker].node for worker in simulation.members}
    assert nodes_of == {"node-0", "node-2"}
    status = simulation.status
    assert (status["state"], status["worldSize"], status["failures"]) == ("Resizing", 32, 0)
    degraded = condition(status, "Degraded")
    assert (
        "on node node-1 runs 8, the others run 16 each; "
        "create the job with a number in spec.nprocPerNode" in degraded["message"]
    )
    assert len(simulation.declared) == 1, "one group, which nothing disturbs"
    assert simulation.made == 3, "no pod is made in place of the one that waits"
