from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.actions import CreatePod, RecordEvent
from elastic_pytorch_operator.planning.memory import Memory, Plan, recall
from elastic_pytorch_operator.planning.plan import plan

from tests.operator.builders import NOW, TIME, a_job, a_manifest, condition, observed, parse_job
from tests.operator.simulation import Simulation, running


def respec(simulation: Simulation, **spec: Any) -> None:
    job = parse_job(a_manifest(**spec))
    simulation.job = replace(
        job, status=simulation.status, generation=simulation.job.generation + 1
    )


def events(simulation: Simulation) -> list[str]:
    return [a.reason for a in simulation.last.actions if isinstance(a, RecordEvent)]


def test_suspended_job_keeps_nothing_and_goes_on_when_resumed() -> None:
    simulation = running()
    respec(simulation, suspend=True)
    simulation.reconcile()
    assert simulation.declared[-1].size == 0, "the group stops before its pods go"
    assert events(simulation) == ["JobSuspended"]
    simulation.settle(5)
    assert not simulation.pods
    assert simulation.reconcile().actions == ()
    respec(simulation)
    simulation.reconcile()
    assert events(simulation) == ["JobResumed"]
    simulation.settle(10)
    status = simulation.status
    assert simulation.sizes == [3, 0, 3]
    assert (status["state"], status["failures"], status["interruptions"]) == ("Running", 0, 0)
    told = [(entry["replicas"], entry["cause"]) for entry in status["history"]]
    assert told == [(3, "FirstRound"), (0, "JobSuspended"), (3, "FirstRound")]
    assert condition(status, "Suspended")["status"] == "False"


def test_job_created_suspended_makes_no_pod() -> None:
    simulation = Simulation(a_job(suspend=True))
    simulation.settle(5)
    assert not simulation.pods
    assert simulation.status["state"] == "Suspended"


def test_others_jobs_are_left_alone() -> None:
    assert plan(a_job(managedBy="example.com/other"), observed(), Memory()) == Plan(Memory())
    todo = plan(a_job(managedBy="elasticpytorch.dev/operator"), observed(), Memory())
    assert any(isinstance(action, CreatePod) for action in todo.actions)


def test_active_deadline_outlives_the_operator() -> None:
    job = a_job(activeDeadlineSeconds=60, status={"startTime": "2025-12-31T23:59:10Z"})
    todo = plan(job, observed(), recall(job, NOW, TIME))
    assert todo.recheck_at == NOW + 10
