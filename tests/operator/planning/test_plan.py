from dataclasses import replace

import pytest
from elastic_pytorch_operator.api.conditions import is_true
from elastic_pytorch_operator.model.actions import (
    CreatePod,
    CreateService,
    DeletePod,
    PatchStatus,
    RecordEvent,
)
from elastic_pytorch_operator.model.observed import NodeView, PodView
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.plan_rounds import REGULAR_SECONDS
from elastic_pytorch_operator.planning.workers.silence import SILENCE_SECONDS
from elastic_pytorch_operator.reconcile.observe import heard_before

from tests.operator.builders import (
    NOW,
    a_dead_pod,
    a_failure,
    a_job,
    a_pod,
    a_round,
    actions_of,
    an_agent,
    condition,
    fields_of,
    observed,
)
from tests.operator.simulation import Simulation, running
from tests.situations import situations


def status_of(todo: Plan) -> dict[str, object]:
    return dict(next(action.status for action in todo.actions if isinstance(action, PatchStatus)))


SELECTOR = "elasticpytorch.dev/job-name=lm,elasticpytorch.dev/role=worker"


def test_new_job_gets_its_service_and_pods() -> None:
    todo = plan(a_job(replicas=2), observed(service_exists=False), Memory())
    assert [a for a in todo.actions if not isinstance(a, PatchStatus)] == [
        CreateService(),
        CreatePod(0),
        CreatePod(1),
    ]
    status = status_of(todo)
    assert fields_of(status, "state", "readyReplicas", "selector") == ("Pending", 0, SELECTOR)


def test_planning_again_changes_nothing() -> None:
    simulation = running()
    silent_at = min(agent.heard_at for agent in simulation.agents.values()) + SILENCE_SECONDS
    later = simulation.now + REGULAR_SECONDS
    assert simulation.reconcile() == Plan(simulation.memory, recheck_at=later, silent_at=silent_at)


def test_lost_pod_is_left_out_at_once_and_replaced() -> None:
    simulation = running()
    simulation.kill_pod(simulation.members[0])
    todo = simulation.reconcile()
    assert todo.round is not None
    assert todo.round.size == 2
    assert actions_of(todo, CreatePod) == [CreatePod(0)]
    simulation.settle(10)
    assert simulation.sizes == [3, 2, 3]
    assert simulation.status["failures"] == 0
    assert [entry["replicas"] for entry in simulation.status["history"]] == [3, 2, 3]
    assert simulation.status["interruptions"] == 2


def test_resumed_training_is_told_once() -> None:
    simulation = running()
    simulation.kill_pod(simulation.members[2])
    simulation.reconcile()
    told = []
    for _ in range(4):
        simulation.settle(0.25)
        events = actions_of(simulation.last, RecordEvent)
        told += [event for event in events if event.reason == "TrainingResumed"]
    assert len(told) == 1
    assert told[0].note.startswith("Training resumed with 2 workers 0.")
    assert simulation.status["history"][-1]["cause"] == "WorkerLost"


def test_scale_down_forms_the_group_before_pods_go() -> None:
    simulation = running()
    simulation.scale(1)
    todo = simulation.reconcile()
    assert todo.round is not None
    assert [simulation.pods[worker].index for worker in todo.round.workers] == [0]
    deletes = [a.name for a in actions_of(todo, DeletePod)]
    assert len(deletes) == 2
    assert not set(deletes) & set(todo.round.workers)


def test_scale_up_does_not_disturb_before_the_newcomers_are_ready() -> None:
    simulation = running(replicas=2)
    simulation.scale(4)
    before = simulation.declared[-1]
    simulation.settle(1.0)
    assert simulation.declared[-1] is before
    simulation.settle(10)
    assert simulation.sizes == [2, 4]


def test_silent_pod_on_a_removed_node_is_deleted_without_grace() -> None:
    nodes = {"node-0": NodeView("node-0"), "node-1": NodeView("node-1", ready=False, removed=True)}
    pods = [a_pod(0), a_pod(1, node="node-1")]
    seen = observed(
        pods, [an_agent("w0"), an_agent("w1", heard_at=NOW - 9)], nodes=nodes, round=a_round(0, 1)
    )
    todo = plan(a_job(replicas=2), seen, Memory())
    assert [(action.name, action.force) for action in actions_of(todo, DeletePod)] == [("w1", True)]


def test_replacement_fits_although_a_sidecar_outlives_its_worker() -> None:
    simulation = Simulation(a_job(replicas=3, minimum=2, maximum=3), pods_per_node=1, sidecars=True)
    simulation.settle(20)
    simulation.kill_pod(simulation.declared[-1].workers[1])
    simulation.settle(20)
    assert simulation.sizes == [3, 2, 3]
    assert not any(pod.lingers for pod in simulation.pods.values())


def test_operator_restart_disturbs_nothing_and_makes_nothing_twice() -> None:
    simulation = running()
    made = simulation.made
    simulation.restart_operator()
    simulation.settle(20)
    assert (len(simulation.declared), simulation.made) == (1, made)


def test_operator_that_has_just_started_calls_nobody_lost() -> None:
    seen = observed(
        [a_pod(i) for i in range(3)],
        [an_agent("w0")],
        round=a_round(0, size=3),
        listening_since=NOW - 1,
    )
    todo = plan(a_job(), seen, Memory())
    assert todo == Plan(todo.memory, recheck_at=NOW + 4)


def test_script_that_keeps_raising_fails_the_job_with_its_words() -> None:
    simulation = running(failurePolicy={"maxFailures": 2})
    for _ in range(3):
        assert not is_true(simulation.status, "Failed")
        simulation.fail_worker(simulation.members[1], "ValueError: boom at step 5")
        simulation.settle(20)
    failed = simulation.condition("Failed")
    assert failed["reason"] == "TooManyFailures"
    assert "boom at step 5" in failed["message"]
    assert simulation.status["rootCause"]["message"] == "ValueError: boom at step 5"


def test_complete_when_all_of_the_round_have_succeeded() -> None:
    simulation = running()
    first = simulation.members[0]
    simulation.agents[first] = replace(
        simulation.agents[first], state=simulation.agents[first].state.SUCCEEDED
    )
    simulation.settle(5)
    assert not is_true(simulation.status, "Complete")
    simulation.succeed()
    todo = simulation.reconcile()
    assert todo.verdict == "complete"
    assert is_true(simulation.status, "Complete")
    assert simulation.status["state"] == "Complete"
    assert any(isinstance(a, RecordEvent) and a.reason == "JobCompleted" for a in todo.actions)


def test_ended_job_gives_its_agents_time_to_exit() -> None:
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    todo = plan(a_job(status=status), observed([a_pod(0)], [an_agent("w0")]), Memory())
    assert (todo.actions, todo.verdict, todo.recheck_at) == ((), "failed", NOW + 10)


def test_job_being_deleted_is_left_to_the_garbage_collector() -> None:
    assert plan(replace(a_job(), deleting=True), observed([a_pod(0)]), Memory()) == Plan(Memory())


def test_failure_before_anything_was_known_of_the_exit_is_told() -> None:
    agent = an_agent(
        "w0",
        "failed",
        failure=a_failure(exit_code=139, signal="SIGSEGV", message="killed"),
        state_since=NOW - 1,
    )
    seen = observed([a_pod(0)], [agent], round=a_round(0))
    todo = plan(a_job(replicas=1, failurePolicy={"maxFailures": 0}), seen, Memory())
    failed = condition(status_of(todo), "Failed")
    assert "killed by SIGSEGV" in failed["message"]


def test_group_that_a_new_operator_cannot_hear_is_replaced_before_others_train_in_its_place() -> (
    None
):
    simulation = running(replicas=2)
    status = simulation.status
    newcomer = an_agent("w2", "ready", round_=0, world_size=0, state_since=NOW - 1)

    def decide(status: object, listening_for: float) -> Plan:
        job = a_job(replicas=3, status=status)
        pods = [a_pod(0), a_pod(1), a_pod(2)]
        found = observed(
            pods,
            [newcomer],
            listening_since=NOW - listening_for,
            last_heard_at=NOW,
            heard_before=heard_before(job, pods),
        )
        return plan(job, found, Memory())

    status = {
        **status,
        "workers": [
            {"name": f"w{index}", "index": index, "state": "Running"} for index in range(2)
        ],
    }
    waits = decide(status, listening_for=10)
    assert waits.round is None
    assert not actions_of(waits, DeletePod)
    told = status_of(waits)
    assert [worker["state"] for worker in told["workers"]] == ["Silent", "Silent", "Ready"]  # type: ignore[attr-defined]

    assert not actions_of(decide(told, listening_for=119), DeletePod)
    over = decide(told, listening_for=121)
    assert [action.name for action in actions_of(over, DeletePod)] == ["w0", "w1"]
    assert [action.index for action in actions_of(over, CreatePod)] == [0, 1]


def test_worker_lost_with_the_leaders_node_is_left_out_and_replaced_at_once() -> None:
    pods = [a_pod(0), a_pod(1, node="node-1"), a_pod(2, node="node-2")]
    broken = [
        an_agent(name, "failed", failure=a_failure("gloo: Connection closed by peer"))
        for name in ("w0", "w1")
    ]
    seen = observed(
        pods,
        broken,
        round=a_round(0, 1, size=3),
        heard_before=frozenset({"w0", "w1", "w2"}),
        lost_leader_node="node-2",
        listening_since=NOW - 1.5,
        last_heard_at=NOW,
        arrived_at=NOW - 1.0,
    )
    todo = plan(a_job(), seen, Memory())
    assert todo.round is not None
    assert set(todo.round.workers) == {"w0", "w1"}
    created = [(action.index, action.avoid) for action in actions_of(todo, CreatePod)]
    assert created == [(2, ("node-2",))]
    assert [action.name for action in actions_of(todo, DeletePod)] == ["w2"]
    assert todo.memory.budget.failures == 0


@pytest.mark.parametrize("silent_for", [0.0, 60.0])
def test_all_nodes_not_ready_at_once_delete_nothing(silent_for: float) -> None:
    """It is the control plane that has lost them, and perhaps the operator that hears no agent."""
    heard_at = NOW - silent_for
    seen = observed(
        [a_pod(index, node=f"node-{index}") for index in range(3)],
        [an_agent(f"w{index}", heard_at=heard_at, progressed_at=heard_at) for index in range(3)],
        round=a_round(0, 1, 2),
        nodes={f"node-{n}": NodeView(f"node-{n}", ready=False) for n in range(3)},
        last_heard_at=heard_at,
    )
    todo = plan(a_job(), seen, Memory())
    assert todo.round is None
    assert not actions_of(todo, DeletePod) + actions_of(todo, CreatePod)


def test_number_of_a_round_that_some_agent_knows_is_not_used_again() -> None:
    """An operator before this one had declared round 8, and could write it nowhere."""
    stopped = [
        an_agent(f"w{index}", "ready", round_=7, newest=8, state_since=NOW - 60)
        for index in range(2)
    ]
    newcomer = an_agent("w2", "ready", round_=0, world_size=0, state_since=NOW - 60)
    pods = [a_pod(0), a_pod(1), a_pod(2)]
    todo = plan(
        a_job(status={"round": 7}),
        observed(pods, [*stopped, newcomer], last_heard_at=NOW),
        Memory(),
    )
    assert todo.round is not None
    assert todo.round.number == 9


def test_steady_round_makes_up_for_failures_although_the_dead_pods_are_kept_for_their_logs() -> (
    None
):
    dead = a_dead_pod(2, exit_reason="OOMKilled", exit_code=137)
    group = replace(a_round(0, 1), declared_at=NOW - 4000)
    agents = [an_agent("w0"), an_agent("w1")]
    memory = Memory(budget=Budget(failures=2, counted_pods=frozenset({dead.uid})))
    todo = plan(
        a_job(replicas=2),
        observed([a_pod(0), a_pod(1), dead], agents, round=group, last_heard_at=NOW),
        memory,
    )
    assert todo.memory.budget.failures == 0


LISTENING = {"listening_since": NOW - 1, "arrived_at": 0.0}


@situations(
    "pods, fields, made",
    {
        "a pod has gone": ([a_pod(0), a_pod(2)], {}, [1]),
        "a pod has ended": ([a_pod(0), a_dead_pod(1), a_pod(2)], {}, []),
        "all are there": ([a_pod(0), a_pod(1), a_pod(2)], {}, []),
        "they are enough, of other indices": ([a_pod(0), a_pod(2), a_pod(3)], {}, []),
        "a pod goes": ([a_pod(0), a_pod(1, deleting=True), a_pod(2)], {}, [1]),
        "a pod has ended with exit code 0": ([a_pod(0), a_dead_pod(2, exit_code=0)], {}, [1]),
        "a loss fails the job": (
            [a_pod(0), a_pod(2)],
            {"failurePolicy": {"onPodLoss": "FailJob"}},
            [],
        ),
        "the job is suspended": ([a_pod(0), a_pod(2)], {"suspend": True}, []),
    },
)
def test_new_leader_makes_pods_that_are_missing_while_it_listens(
    pods: list[PodView], fields: dict[str, object], made: list[int]
) -> None:
    todo = plan(a_job(**fields), observed(pods, **LISTENING), Memory())
    assert [action.index for action in actions_of(todo, CreatePod)] == made
    assert todo.round is None
