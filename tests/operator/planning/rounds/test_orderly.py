from typing import Any

from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.rounds.next_round import Cause
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.reconcile.observe import recover_round

from tests.operator.builders import NOW, a_candidate, a_pod, a_round, an_agent, declare_next
from tests.operator.simulation import running
from tests.situations import situations

SUSPENDED = Cause("JobSuspended", "the job is suspended")
HERE, NEW = 7, 8  # the group's round and the next; nobody has been lost since round 5


def candidate(index: int, liveness: str = "ready", **fields: Any) -> Candidate:
    return a_candidate(index, liveness, **{"round": HERE, "restarts": 1, **fields})


def ready(*indices: int) -> list[Candidate]:
    return [candidate(index) for index in indices]


FAILED = {"failed": True, "state_since": NOW - 0.1}


@situations(
    "candidates, how, reason, since",
    {
        "scaled down": (
            [*ready(0, 1), candidate(2, "leaving", retired=True)],
            {"wanted": 2},
            "ScaledDown",
            5,
        ),
        "a pod is drained": (
            [*ready(0, 1), candidate(2, "leaving", why="is being deleted")],
            {},
            "WorkerLeaving",
            5,
        ),
        "too few are left by those who leave": (
            [candidate(i, "leaving") for i in range(3)],
            {},
            "BelowMinimum",
            5,
        ),
        "a newcomer is ready": (ready(0, 1, 2, 3), {"wanted": 4}, "WorkerJoined", 5),
        "a newcomer takes the place of one who leaves": (
            [*ready(0, 1, 3), candidate(2, "leaving")],
            {},
            "WorkerLeaving",
            5,
        ),
        "suspended": (ready(0, 1, 2), {"stop": SUSPENDED, "wanted": 0}, "JobSuspended", 5),
        "a pod is gone": ([*ready(0, 1), candidate(2, "gone")], {}, "WorkerLost", NEW),
        "a pod is no longer known": (ready(0, 1), {}, "WorkerLost", NEW),
        "one is gone and one leaves": (
            [*ready(0), candidate(1, "leaving"), candidate(2, "gone")],
            {},
            "WorkerLost",
            NEW,
        ),
        "an agent is a stranger": (
            [*ready(0, 1), candidate(2, "starting")],
            {},
            "WorkerLeaving",
            NEW,
        ),
        "one who leaves has been silent since": (
            [*ready(0, 1), candidate(2, "leaving", heard_at=NOW - 3.1)],
            {},
            "WorkerLeaving",
            NEW,
        ),
        "a worker has failed": ([candidate(0, **FAILED), *ready(1, 2)], {}, "WorkerFailed", NEW),
        "one who leaves has failed": (
            [*ready(0, 1), candidate(2, "leaving", **FAILED)],
            {},
            "WorkerLeaving",
            NEW,
        ),
        "too few are left by a loss": (
            [candidate(0), candidate(1, "gone")],
            {"job": {"minimum": 2}},
            "BelowMinimum",
            NEW,
        ),
        "suspended while a worker has failed": (
            [candidate(0, **FAILED), *ready(1, 2)],
            {"stop": SUSPENDED},
            "",
            NEW,
        ),
        "suspended while a pod is gone": (
            [*ready(0, 1), candidate(2, "gone")],
            {"stop": SUSPENDED},
            "",
            NEW,
        ),
        "the group hangs": (
            ready(0, 1, 2),
            {"stall": Cause("ProgressStalled", "no step for 60 s")},
            "ProgressStalled",
            NEW,
        ),
        "a member has finished, another leaves": (
            [*ready(0, 1), candidate(2, "leaving")],
            {"agents": [an_agent("w0", "succeeded", HERE)]},
            "",
            NEW,
        ),
    },
)
def test_change_of_a_group(
    candidates: list[Candidate], how: dict[str, Any], reason: str, since: int
) -> None:
    declared = declare_next(a_round(0, 1, 2, number=HERE, orderly_since=5), candidates, **how)
    assert (declared.number, declared.orderly_since) == (NEW, since)
    assert reason in ("", declared.reason)


BEHIND = {"round": HERE - 1}  # on its way to a step boundary in the round before
NEWCOMER = {"restarts": 0}


@situations(
    "candidates, since",
    {
        "a newcomer has failed": (
            [candidate(0, **BEHIND), candidate(1, **BEHIND), candidate(2, **NEWCOMER, **FAILED)],
            5,
        ),
        "a newcomer is lost": (
            [candidate(0, **BEHIND), candidate(1), candidate(2, "gone", **NEWCOMER)],
            5,
        ),
        "one that has left the round before has failed": (
            [candidate(0, **BEHIND), candidate(1, **FAILED), candidate(2)],
            5,
        ),
        "one that has left the round before is lost": (
            [candidate(0, **BEHIND), candidate(1, "gone"), candidate(2)],
            NEW,
        ),
        "one of the round before is lost": (
            [candidate(0, **BEHIND), candidate(1, "gone", **BEHIND), candidate(2)],
            NEW,
        ),
        "both": (
            [candidate(0, **BEHIND), candidate(1, "gone", **BEHIND), candidate(2, **FAILED)],
            NEW,
        ),
        "the group has formed, a newcomer has failed": (
            [*ready(0, 1), candidate(2, **NEWCOMER, **FAILED)],
            NEW,
        ),
        "the group has formed, a newcomer is lost": (
            [*ready(0, 1), candidate(2, "gone", **NEWCOMER)],
            NEW,
        ),
    },
)
def test_trouble_in_a_group_that_has_not_formed(candidates: list[Candidate], since: int) -> None:
    declared = declare_next(a_round(0, 1, 2, number=HERE, orderly_since=5), candidates)
    assert declared.orderly_since == since


def test_newcomers_that_time_out_leave_the_old_group_its_boundary() -> None:
    simulation = running(replicas=2, maximum=4, failurePolicy={"maxFailures": 1})
    trains = simulation.declared[-1]
    simulation.saving.update(trains.workers)  # a checkpoint at the boundary that takes five minutes
    simulation.scale(3)
    simulation.settle(5)
    for _ in range(5):
        newcomer = next(
            worker for worker in simulation.declared[-1].workers if worker not in trains.workers
        )
        simulation.settle(60)
        simulation.fail_worker(
            newcomer,
            "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients",
        )
        simulation.settle(1)
    assert len(simulation.declared) == 1 + 1 + 5
    assert {declared.orderly_since for declared in simulation.declared} == {trains.number}
    assert simulation.declared[-1].unformed == tuple(
        declared.number for declared in simulation.declared[1:-1]
    )
    assert simulation.status["failures"] == 0
    simulation.saving.clear()
    simulation.settle(5)
    assert simulation.status["state"] == "Running"
    assert simulation.status["worldSize"] == 3
    simulation.kill_pod(newcomer)
    simulation.settle(0.25)
    lost = simulation.declared[-1]
    assert (lost.orderly_since, lost.unformed) == (lost.number, ())


@situations("before", {"first": None, "after-an-empty-one": a_round(number=HERE, orderly_since=5)})
def test_round_that_follows_nobody(before: Round | None) -> None:
    declared = declare_next(before, ready(0, 1, 2), last_number=HERE)
    assert (declared.number, declared.orderly_since) == (NEW, NEW)


def test_number_that_others_knew_of_is_no_gap() -> None:
    declared = declare_next(a_round(0, 1, 2, number=HERE), ready(0, 1), wanted=2, last_number=11)
    assert (declared.number, declared.orderly_since) == (12, 12), "w2 is no longer known"
    declared = declare_next(a_round(0, 1, number=HERE), ready(0, 1, 2), last_number=11)
    assert (declared.number, declared.orderly_since) == (12, HERE)


def test_round_that_a_restarted_operator_puts_together_is_where_it_begins() -> None:
    pods = [a_pod(index) for index in range(3)]
    agents = {f"w{i}": an_agent(f"w{i}", round_=HERE, rank=i, world_size=3) for i in range(3)}
    rebuilt = recover_round(pods, agents, NOW)
    assert rebuilt is not None
    assert rebuilt.orderly_since == HERE
    declared = declare_next(rebuilt, ready(0, 1, 2, 3), wanted=4)
    assert declared.orderly_since == HERE
    del agents["w1"]
    partly = recover_round(pods, agents, NOW)
    assert partly is not None
    declared = declare_next(partly, ready(0, 1, 2))
    assert declared.orderly_since == NEW, "w1 has not been heard of"


def test_chain_of_changes_reaches_back_to_the_last_loss() -> None:
    simulation = running(replicas=2, maximum=6)
    simulation.scale(4)
    simulation.settle(10)
    simulation.scale(3)
    simulation.settle(10)
    simulation.delete_pod(simulation.declared[-1].workers[0])
    simulation.reconcile()
    simulation.settle(10)
    orderly = [(r.number, r.orderly_since) for r in simulation.declared]
    assert len(orderly) >= 4
    assert {since for _, since in orderly} == {orderly[0][0]}, "nobody was lost"

    simulation.kill_pod(simulation.declared[-1].workers[0])
    simulation.settle(0.25)
    lost = simulation.declared[-1]
    assert lost.orderly_since == lost.number
    simulation.settle(10)  # its replacement joins
    assert simulation.declared[-1].number > lost.number
    assert simulation.declared[-1].orderly_since == lost.number


@situations(
    "candidates, how, since",
    {
        "a newcomer is ready": (ready(0, 1, 2, 3), {"wanted": 4}, 6),
        "a member has failed, and stays": ([*ready(0, 1), candidate(2, **FAILED)], {}, 6),
        "scaled down": ([*ready(0, 1), candidate(2, "leaving", retired=True)], {"wanted": 2}, NEW),
        "a newcomer takes the place of one who leaves": (
            [*ready(0, 1, 3), candidate(2, "leaving")],
            {},
            NEW,
        ),
        "suspended": (ready(0, 1, 2), {"stop": SUSPENDED, "wanted": 0}, NEW),
    },
)
def test_since_when_nobody_has_had_to_leave(
    candidates: list[Candidate], how: dict[str, Any], since: int
) -> None:
    declared = declare_next(a_round(0, 1, 2, number=HERE, keeps_all_since=6), candidates, **how)
    assert declared.keeps_all_since == since


def test_group_that_is_not_known_as_a_whole_is_not_known_to_be_kept() -> None:
    declared = declare_next(a_round(0, 1, number=HERE, size=3), ready(0, 1, 2))
    assert declared.keeps_all_since == NEW
