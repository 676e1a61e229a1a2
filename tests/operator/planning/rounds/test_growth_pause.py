"""The pause between two growths, `resizePolicy.minSecondsBetweenGrowths`."""

from elastic_pytorch_operator.planning.rounds.next_round import grows

from tests.operator.builders import a_round
from tests.operator.simulation import running

PAUSE = {"resizePolicy": {"minSecondsBetweenGrowths": 60}}


def test_what_growth_is() -> None:
    assert grows(None, a_round(0))
    assert grows(a_round(0), a_round(0, 1, number=2))
    assert grows(a_round(number=1), a_round(0, number=2))
    assert not grows(a_round(0, 1), a_round(0, 2, number=2)), "a lost worker is replaced"
    assert not grows(a_round(0), None)


def test_newcomers_wait_after_the_first_group_and_after_each_growth() -> None:
    simulation = running(replicas=2, **PAUSE)
    formed_at = simulation.declared[0].declared_at
    simulation.scale(3)
    simulation.settle(10)
    resizing = simulation.condition("Resizing")
    assert (resizing["status"], resizing["reason"]) == ("True", "CoolingDown")
    assert resizing["message"].startswith(
        "growing from 2 to 3 workers: w2-3 is ready; the group may grow at "
    )
    degraded = simulation.condition("Degraded")
    assert degraded["message"].startswith(
        "trains with 2 of 3 workers; w2-3 is ready; the group may grow at "
    )
    assert simulation.reconcile().recheck_at is not None
    assert simulation.reconcile().actions == ()
    simulation.settle(60)
    assert simulation.sizes == [2, 3]
    assert 60 <= simulation.declared[1].declared_at - formed_at <= 61
    simulation.scale(4)
    simulation.settle(30)
    assert simulation.sizes == [2, 3]
    simulation.settle(40)
    assert simulation.sizes == [2, 3, 4]


def test_losses_failures_and_scale_downs_never_wait() -> None:
    simulation = running(replicas=3, **PAUSE)
    simulation.kill_pod(simulation.members[2])
    simulation.settle(1)
    assert simulation.sizes == [3, 2]
    simulation.fail_worker(simulation.members[0], "ValueError: boom")
    simulation.settle(1)
    assert simulation.sizes == [3, 2, 2]
    simulation.scale(1)
    simulation.settle(1)
    assert simulation.sizes == [3, 2, 2, 1]


def test_pause_outlives_the_operator() -> None:
    simulation = running(replicas=2, **PAUSE)
    assert simulation.status["operatorState"]["lastGrowthTime"]
    simulation.scale(3)
    simulation.settle(5)
    simulation.restart_operator()
    simulation.settle(30)
    assert simulation.sizes == [2]
    simulation.settle(60)
    assert simulation.sizes == [2, 3]
