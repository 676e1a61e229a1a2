from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import Observed, Place, PlaceKind, Progress
from elastic_pytorch_operator.planning.failures.progress_deadline import (
    ANSWERS_SECONDS,
    STACKS_SECONDS,
    Stall,
    find_stall,
)

from tests.operator.builders import NOW, a_job, a_pod, a_round, an_agent, observed
from tests.operator.simulation import running
from tests.situations import situations

JOB = a_job(progressDeadlineSeconds=60)


def group(*steps: int | None, stepped_at: float = NOW - 90, **fields: Any) -> Observed:
    agents = [
        an_agent(f"w{i}", rank=i, progress=Progress(step=step), progressed_at=stepped_at)
        for i, step in enumerate(steps)
    ]
    return observed(
        [a_pod(i) for i in range(len(steps))],
        agents,
        round=fields.pop("round_", a_round(*range(len(steps)))),
    )


def saving(seen: Observed) -> Observed:
    return replace(
        seen, agents={**seen.agents, "w0": replace(seen.agents["w0"], saving_since=NOW - 80)}
    )


def stall_of(seen: Observed, known: Stall | None = None) -> Stall:
    """Why a group hangs, as it must."""
    stall, _ = find_stall(JOB, seen, known)
    assert stall is not None
    return stall


@situations(
    "seen, stalls",
    {
        "no step for longer than allowed": (group(5, 5), True),
        "a step a moment ago": (group(5, 5, stepped_at=NOW - 59), False),
        "a young round": (group(5, 5, round_=replace(a_round(0, 1), declared_at=NOW - 30)), False),
        "no worker has ever reported": (group(None, None, stepped_at=0.0), True),
        "a last checkpoint that is being written": (saving(group(5, 5)), False),
        "no group": (observed([a_pod(0)], [an_agent("w0")], round=a_round()), False),
    },
)
def test_stalls(seen: Observed, stalls: bool) -> None:
    assert (find_stall(JOB, seen, None)[0] is not None) == stalls
    assert find_stall(a_job(), seen, None) == (None, None), "no deadline, no stall"


@pytest.mark.parametrize(
    ("steps", "worker", "words"),
    [
        ((7, 6, 7), "w1", "rank 1 has come to step 6, others to step 7"),
        ((7, 7), "w0", "all have come to step 7"),
        ((None, None), "w0", "elastic_pytorch.report"),
    ],
)
def test_the_worker_that_is_furthest_behind_is_named(
    steps: tuple[int | None, ...], worker: str, words: str
) -> None:
    stall, recheck = find_stall(JOB, group(*steps), None)
    assert stall is not None
    assert recheck == stall.restart_at == NOW + STACKS_SECONDS
    assert stall.cause.worker == worker
    assert words in stall.cause.message
    assert str(stall.cause).startswith(
        f"rank {stall.cause.rank} ({worker}) hangs: no step was finished within"
    )


REDUCE, LOADS = (
    Place(PlaceKind.COLLECTIVE, "all_reduce"),
    Place(PlaceKind.DATA_LOADER, frame="train.py:41 load"),
)


def answering(seen: Observed, *places: tuple[Place, ...], placed_at: float = NOW) -> Observed:
    """The same group, of which some agents have said where their ranks stand."""
    agents = dict(seen.agents)
    for index, own in enumerate(places):
        count = max(1, len(own))
        agents[f"w{index}"] = replace(
            agents[f"w{index}"], places=own, placed_at=placed_at, local_world_size=count
        )
    return replace(seen, agents=agents)


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    stall, recheck = find_stall(
        JOB, answering(group(7, 7, 7), (REDUCE, REDUCE), (REDUCE, LOADS), (REDUCE, REDUCE)), None
    )
    assert stall is not None
    assert recheck == stall.restart_at == NOW + STACKS_SECONDS
    assert (stall.cause.worker, stall.cause.rank) == ("w1", 3)
    assert (
        "(60); rank 3 is in its data loader (train.py:41 load), the others wait in all_reduce; "
        "the pods'" in stall.cause.message
    )


def test_script_that_reports_no_steps_is_told_so_beside_the_rank() -> None:
    stall = stall_of(answering(group(None, None), (REDUCE,), (LOADS,)))
    assert "elastic_pytorch.report" in stall.cause.message
    assert "rank 1 is in its data loader" in stall.cause.message


def test_pod_says_nothing_of_the_ranks_of_others() -> None:
    stall = stall_of(answering(group(7, 7, 7), (REDUCE, LOADS, LOADS), (REDUCE,), (REDUCE,)))
    assert "all ranks wait in all_reduce" in stall.cause.message


def test_missing_answers_are_awaited_once_one_has_come() -> None:
    asked = stall_of(group(7, 7))
    some = answering(group(7, 7), (REDUCE,))
    stall, recheck = find_stall(JOB, some, asked)
    assert stall is not None
    assert recheck == stall.restart_at == NOW + ANSWERS_SECONDS
    late = stall_of(replace(some, now=NOW + ANSWERS_SECONDS), asked)
    assert late.restart_at == NOW + STACKS_SECONDS, "it waits no longer"
    assert (late.cause.worker, late.cause.rank) == ("w1", 1)
    assert "rank 1 has not said where it is, the other waits in all_reduce" in late.cause.message
    whole = stall_of(answering(group(7, 7), (REDUCE,), (LOADS,)), asked)
    assert whole.restart_at == NOW + STACKS_SECONDS


def test_answers_of_before_do_not_count() -> None:
    stall = stall_of(answering(group(7, 7), (REDUCE,), (LOADS,), placed_at=NOW - 1))
    assert "data loader" not in stall.cause.message
    assert "rank 0" in str(stall.cause), "as of agents that say nothing"


def test_looks_again_when_the_deadline_ends() -> None:
    assert find_stall(JOB, group(5, 5, stepped_at=NOW - 20), None) == (None, NOW + 40)


def test_stacks_first_then_a_restart_that_counts_then_the_end() -> None:
    simulation = running(replicas=2, progressDeadlineSeconds=20, failurePolicy={"maxFailures": 1})
    asked = []
    for _ in range(160):
        simulation.settle(0.25)
        if simulation.last.dump_stacks:
            asked.append(len(simulation.declared))
    assert asked == [1, 2], "the stacks of each round, before it is restarted"
    assert [round_.reason for round_ in simulation.declared] == ["FirstRound", "ProgressStalled"]
    assert simulation.status["state"] == "Failed"
    assert simulation.status["rootCause"]["message"].startswith("no step was finished within")


def test_worker_that_the_group_hangs_for_is_named_and_keeps_its_place() -> None:
    simulation = running(replicas=3, progressDeadlineSeconds=20)
    members = sorted(simulation.members)
    for worker in members:
        agent = simulation.agents[worker]
        simulation.agents[worker] = replace(
            agent, progress=Progress(step=5), progressed_at=simulation.now
        )
    while len(simulation.declared) == 1:
        simulation.settle(0.25)
        if simulation.last.dump_stacks:
            for rank, worker in enumerate(members):
                places = (LOADS if rank == 2 else REDUCE,)
                simulation.agents[worker] = replace(
                    simulation.agents[worker], places=places, placed_at=simulation.now
                )
    again = simulation.declared[-1]
    found = (again.reason, sorted(simulation.members), simulation.made)
    assert found == ("ProgressStalled", members, 3)
    assert (
        "rank 2 is in its data loader (train.py:41 load), the others wait in all_reduce"
        in again.cause
    )
    cause, node = simulation.status["rootCause"], simulation.pods[members[2]].node
    assert (cause["worker"], cause["rank"], cause["node"]) == (members[2], 2, node)


def test_group_that_trains_on_to_its_boundary_before_an_orderly_change_does_not_hang() -> None:
    agents = [an_agent(worker, round_=1, progressed_at=NOW - 20) for worker in ("w0", "w1")]
    changed = replace(a_round(0, 1, 2), number=2, declared_at=NOW - 61, orderly_since=1)
    assert find_stall(
        JOB, observed([a_pod(0), a_pod(1), a_pod(2)], agents, round=changed), None
    ) == (None, NOW + 40)
    lost = replace(changed, orderly_since=2)
    assert (
        find_stall(JOB, observed([a_pod(0), a_pod(1), a_pod(2)], agents, round=lost), None)[0]
        is not None
    )
