"""A new leader declares no worker lost that is there, in a job of any size, and leaves none out.

Of a large job the status does not list all workers.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import pytest
from elastic_pytorch_operator.model.actions import DeletePod
from elastic_pytorch_operator.model.announced_ends import Taint
from elastic_pytorch_operator.model.failure import Ending
from elastic_pytorch_operator.model.observed import AgentState, NodeView
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.completion import decide_ending
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.workers.liveness import assess_workers
from elastic_pytorch_operator.planning.workers.silence import UNHEARD
from elastic_pytorch_operator.spec.job import FAIL_JOB
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hypothesis_examples import examples
from tests.operator.builders import a_job, a_target, actions_of
from tests.operator.simulation import Simulation, running
from tests.situations import situations

pytestmark = pytest.mark.simulation

WORKERS, PODS_PER_NODE = 150, 15
SLOW_START_SECONDS = 30.0  # longer than any leader waits for an agent that has reported before
CONNECTION_SECONDS = 0.4  # from one agent to the next
TAKEOVER_SECONDS = 24.0  # until a leader has given up the agents that it has not heard


@cache
def template() -> Simulation:
    simulation = Simulation(
        a_job(replicas=WORKERS, maximum=WORKERS),
        nodes={f"node-{n}": NodeView(f"node-{n}") for n in range(WORKERS // PODS_PER_NODE + 2)},
        pods_per_node=PODS_PER_NODE,
        step_seconds=0.5,
    )
    simulation.settle(4)
    return simulation


def large_job() -> Simulation:
    """A job of many workers, all of which train."""
    made = template()
    simulation = replace(
        made,
        nodes=dict(made.nodes),
        pods=dict(made.pods),
        agents=dict(made.agents),
        declared=[],
        connects_at={},
    )
    assert simulation.round is not None
    assert simulation.round.size == WORKERS
    assert "unlistedWorkers" in simulation.status
    return simulation


def round_of(simulation: Simulation) -> Round:
    """The round that the leader knows of, which must be one."""
    round_ = simulation.observe().round
    assert round_ is not None
    return round_


def deleted(simulation: Simulation, seconds: float) -> list[str]:
    """Lets time pass; returns the pods that the operator has deleted meanwhile."""
    names: list[str] = []
    until = simulation.now + seconds
    while simulation.now < until:
        simulation.settle(simulation.step_seconds)
        names += [action.name for action in actions_of(simulation.last, DeletePod)]
    return names


def silenced(
    simulation: Simulation, indexes: Iterable[int], seconds: float = 1000
) -> dict[str, float]:
    """When the agents of some workers connect to a new leader."""
    pods = (pod for pod in simulation.pods.values() if pod.index in set(indexes))
    return {pod.name: simulation.now + seconds for pod in pods}


@settings(max_examples=examples(20))
@given(
    before=st.lists(st.integers(0, WORKERS - 1), max_size=6, unique=True),
    unwritten=st.lists(st.integers(0, WORKERS - 1), max_size=6, unique=True),
    late=st.dictionaries(st.integers(0, WORKERS - 1), st.floats(0, 4.5), max_size=8),
)
@example(before=[3, 140], unwritten=[4, 141], late={5: 4.0, 145: 3.0})
def test_worker_that_is_there_is_not_lost(
    before: list[int], unwritten: list[int], late: dict[int, float]
) -> None:
    """Pods are replaced around the last status; replacements report after half a minute."""
    simulation = large_job()
    simulation.agent_start_seconds = SLOW_START_SECONDS
    for indexes, writes_status in ((before, True), (unwritten, False)):
        simulation.writes_status = writes_status
        for name in [
            pod.name
            for pod in simulation.pods.values()
            if pod.index in indexes and not pod.deleting
        ]:
            simulation.delete_pod(name)
        simulation.settle(2)
    simulation.writes_status = True
    pods = [pod for pod in simulation.pods.values() if pod.index in late]
    simulation.take_over({pod.name: simulation.now + late[pod.index] for pod in pods})
    members = {name for name, agent in simulation.agents.items() if agent.round}
    assert deleted(simulation, TAKEOVER_SECONDS) == []
    assert members <= set(round_of(simulation).workers), "none is left out that trains"
    simulation.settle(SLOW_START_SECONDS - TAKEOVER_SECONDS + 6)
    assert round_of(simulation).size == WORKERS


@pytest.mark.parametrize("changes", [1, 4])
def test_worker_that_waits_long_to_be_let_in_is_not_lost_however_often_the_leader_changes(
    changes: int,
) -> None:
    """A busy leader needs longer for the handshakes of thousands than it waits for one."""
    simulation = large_job()
    simulation.crowded = True
    lost: list[str] = []
    for _ in range(changes):
        simulation.take_over(silenced(simulation, [3, 140], seconds=25))
        lost += deleted(simulation, TAKEOVER_SECONDS if changes == 1 else 17)
    simulation.settle(10)
    assert lost == []
    assert round_of(simulation).size == WORKERS


def test_group_that_takes_a_minute_to_connect_is_not_disturbed() -> None:
    """A leader on one core needs that for the connections of ten thousand agents."""
    simulation = large_job()
    assert simulation.round is not None
    before = simulation.round
    pods = simulation.pods.values()
    simulation.take_over({p.name: simulation.now + CONNECTION_SECONDS * p.index for p in pods})
    assert deleted(simulation, CONNECTION_SECONDS * WORKERS + 10) == []
    assert simulation.declared == []
    after = round_of(simulation)
    assert (after.number, set(after.workers)) == (before.number, set(before.workers))


def test_worker_that_is_not_listed_and_is_heard_no_more_is_replaced() -> None:
    """Until every node has the leader's address, the group may only be out of reach."""
    simulation = large_job()
    silent = silenced(simulation, [3, 140])
    simulation.take_over(silent)
    assert deleted(simulation, UNHEARD.at_most_seconds - 1) == []
    assert simulation.declared == []
    assert sorted(set(deleted(simulation, 5))) == sorted(silent)


def test_worker_of_a_group_that_breaks_is_replaced_sooner() -> None:
    simulation = large_job()
    silent = silenced(simulation, [3, 140])
    simulation.take_over(silent)
    simulation.settle(2)
    for name in simulation.agents.keys() - silent.keys():
        simulation.fail_worker(name)
    assert sorted(set(deleted(simulation, TAKEOVER_SECONDS - 2))) == sorted(silent)
    assert set(simulation.declared[0].workers).isdisjoint(silent)


def test_group_of_which_a_part_is_out_of_reach_is_not_disturbed() -> None:
    """A node learns the leader's address a minute after an outage of the API server.

    The script reports no steps.
    """
    simulation = large_job()
    assert simulation.round is not None
    before = simulation.round
    simulation.take_over(silenced(simulation, range(45, 60), seconds=100))
    assert deleted(simulation, 125) == []
    assert simulation.declared == []
    after = round_of(simulation)
    assert (after.number, set(after.workers)) == (before.number, set(before.workers))


def test_newcomer_does_not_train_beside_a_group_that_is_out_of_reach() -> None:
    simulation = running(replicas=2, maximum=3)
    simulation.agent_start_seconds = 3.0
    simulation.scale(3)
    simulation.settle(2)
    group = set(simulation.agents)
    simulation.declared.clear()
    simulation.take_over(dict.fromkeys(group, simulation.now + 60))
    assert deleted(simulation, 58) == []
    assert simulation.declared == [], "the group trains on"
    simulation.settle(10)
    assert simulation.round is not None
    assert group < set(simulation.round.workers)


def end_node(simulation: Simulation) -> None:
    node = simulation.pods[simulation.members[-1]].node
    simulation.announce(node, Taint("aws-node-termination-handler/spot-itn", "", "NoSchedule"))


def restart_group(simulation: Simulation) -> None:
    simulation.job = replace(simulation.job, status={**simulation.status, "groupRestarts": 1})


def change_job(**fields: int) -> Callable[[Simulation], None]:
    def change(simulation: Simulation) -> None:
        simulation.job = replace(simulation.job, generation=2, **fields)

    return change


@situations(
    "heard, change",
    {
        "its node ends": (0, end_node),
        "its node ends, and others are heard": (2, end_node),
        "fewer are wanted": (0, change_job(wanted=3)),
        "fewer are wanted, and others are heard": (2, change_job(wanted=3)),
        "fewer spares are wanted": (0, change_job(spares=0)),
        "fewer spares are wanted, and others are heard": (2, change_job(spares=0)),
        "its group restarts": (0, restart_group),
    },
)
def test_worker_goes_only_once_the_leader_knows_the_round_that_may_have_it(
    heard: int, change: Callable[[Simulation], None]
) -> None:
    simulation = running(replicas=4, minimum=3, maximum=4, spares=1)
    before, silent = set(simulation.pods), simulation.members[heard:]
    change(simulation)
    simulation.take_over(dict.fromkeys(silent, simulation.now + 60))
    simulation.declared.clear()
    assert set(deleted(simulation, 58)).isdisjoint(silent)
    assert simulation.declared == [], "the group trains on"
    assert simulation.last.urgent_at is not None, "it may be lost"
    simulation.settle(20)
    assert before - simulation.pods.keys(), "the leader has heard the group"


def test_group_that_is_not_heard_is_told_to_stop_before_its_pods_are_deleted() -> None:
    simulation = running(replicas=2)
    group = set(simulation.members)
    simulation.job = replace(simulation.job, suspend=True, wanted=0, generation=2)
    simulation.take_over(dict.fromkeys(group, simulation.now + 60))
    simulation.declared.clear()
    assert set(deleted(simulation, 15)) == group
    assert [(round_.size, round_.reason) for round_ in simulation.declared] == [(0, "JobSuspended")]


def test_whole_group_that_is_heard_no_more_is_not_trained_beside() -> None:
    simulation = large_job()
    simulation.take_over(silenced(simulation, range(WORKERS)))
    simulation.settle(9)
    assert simulation.declared == []
    states = {worker["state"] for worker in simulation.status["workers"]}
    assert states == {"Running"}, "nothing is said before the group has had its time"


def test_worker_that_becomes_silent_is_listed_although_others_train() -> None:
    simulation = large_job()
    simulation.take_over(silenced(simulation, [140]))
    simulation.settle(12)
    told = {worker["index"]: worker["state"] for worker in simulation.status["workers"]}
    assert told[140] == "Silent"


@pytest.mark.parametrize("gone", [[], [2], [140], [2, 140]])
def test_loss_during_the_change_fails_a_job_that_is_to_fail_then(gone: list[int]) -> None:
    simulation = large_job()
    simulation.job = replace(simulation.job, on_pod_loss=FAIL_JOB)
    for name in [pod.name for pod in simulation.pods.values() if pod.index in gone]:
        del simulation.pods[name], simulation.agents[name]
    simulation.take_over({})
    simulation.now += 0.25
    simulation.connects_at = {}
    seen = simulation.observe()
    ending: Ending | None = decide_ending(
        simulation.job,
        a_target(simulation.job),
        seen,
        assess_workers(seen),
        Memory(),
        NONE_FAILED,
    )[0]
    assert (ending is not None) == bool(gone)
    assert ending is None or ending.message.count(
        "was lost while the leader of the operator changed"
    ) == len(gone)
    assert ending is None or ("worker 140 was lost" in ending.message) == (140 in gone)


@pytest.mark.parametrize("heard", [0, 2])
def test_worker_that_did_not_hear_of_the_last_round_joins_under_a_new_leader(heard: int) -> None:
    """It failed in the round before, and no leader tells its agent of the last one."""
    simulation = running(replicas=3, minimum=2, maximum=3)
    names, agents = simulation.members, simulation.agents
    for name in names:
        simulation.fail_worker(name)
    taken = {"state": AgentState.RUNNING, "round": 2, "newest": 2, "world_size": 2}
    for name in names[:heard]:
        agents[name] = replace(agents[name], failure=None, **taken)
    if not heard:
        agents[names[0]] = replace(agents[names[0]], failure=None, state=AgentState.READY, newest=2)
    simulation.take_over({})
    simulation.settle(30)
    assert set(round_of(simulation).workers) == set(names)
