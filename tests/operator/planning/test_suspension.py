import copy
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.actions import CreatePod, TryPod
from elastic_pytorch_operator.planning.failed_writes import (
    DRY_RUN,
    PODS,
    STATUS,
    Answers,
    FailedWrite,
)
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan

from tests.operator.builders import NOW, a_job, a_manifest, actions_of, observed
from tests.operator.running_controller import Running
from tests.operator.simulation import Simulation, running
from tests.operator.stock_simulation import StockSimulation

TYPES = ["Running", "Resizing", "Degraded", "Suspended", "Complete", "Failed"]


def suspend(simulation: Simulation, *, resume: bool = False) -> None:
    wanted = 3 if resume else 0
    job = simulation.job
    simulation.job = replace(job, suspend=not resume, wanted=wanted, generation=job.generation + 1)


def conditions(simulation: Simulation | StockSimulation) -> dict[str, tuple[str, str]]:
    found = simulation.status["conditions"]
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in found}


def test_all_conditions_are_there_from_the_first_look_to_the_end() -> None:
    simulation = Simulation(a_job())
    seen = []
    for change in ("created", "running", "suspending", "suspended", "resumed", "complete"):
        match change:
            case "suspending":
                suspend(simulation)
            case "resumed":
                suspend(simulation, resume=True)
            case "complete":
                simulation.succeed()
        if change in ("created", "suspending", "complete"):
            simulation.reconcile()
        else:
            simulation.settle(10)
        assert list(conditions(simulation)) == TYPES
        seen.append(
            (
                change,
                simulation.status["state"],
                *(conditions(simulation)[t] for t in ("Suspended", "Running")),
            )
        )
    assert seen == [
        ("created", "Pending", ("False", "NotSuspended"), ("False", "WaitingForWorkers")),
        ("running", "Running", ("False", "NotSuspended"), ("True", "RoundRunning")),
        ("suspending", "Suspending", ("False", "Suspending"), ("False", "Suspending")),
        ("suspended", "Suspended", ("True", "JobSuspended"), ("False", "JobSuspended")),
        ("resumed", "Running", ("False", "JobResumed"), ("True", "RoundRunning")),
        ("complete", "Complete", ("False", "WorkersSucceeded"), ("False", "WorkersSucceeded")),
    ]
    assert conditions(simulation)["Complete"] == ("True", "WorkersSucceeded")
    assert conditions(simulation)["Failed"] == ("False", "WorkersSucceeded")


def test_job_that_fails_gives_the_reason_in_all_its_conditions() -> None:
    simulation = Simulation(a_job(failurePolicy={"onPodLoss": "FailJob"}))
    simulation.settle(10)
    simulation.kill_pod(simulation.declared[-1].workers[1])
    simulation.settle(5)
    assert set(conditions(simulation).values()) == {("False", "PodLost"), ("True", "PodLost")}
    assert conditions(simulation)["Failed"] == ("True", "PodLost")


def test_pods_that_have_ended_go_with_the_others() -> None:
    simulation = running()
    simulation.kill_pod(simulation.declared[-1].workers[2])
    simulation.settle(10)
    assert [pod for pod in simulation.pods.values() if pod.ended], "kept for its log"
    suspend(simulation)
    simulation.settle(10)
    assert simulation.pods == {}
    assert conditions(simulation)["Suspended"] == ("True", "JobSuspended")


def test_failed_starts_of_the_old_template_do_not_hold_the_pods_of_the_new_one() -> None:
    simulation = Simulation(a_job(), rejecting_nodes={"node-0", "node-1", "node-2"})
    simulation.settle(30)
    assert simulation.made > 6, "tried again"
    suspend(simulation)
    simulation.settle(10)
    simulation.rejecting_nodes.clear()
    simulation.job = replace(
        simulation.job, template={"spec": {"containers": [{"name": "pytorch", "image": "new"}]}}
    )
    suspend(simulation, resume=True)
    created = actions_of(simulation.reconcile(), CreatePod)
    assert created == [CreatePod(0), CreatePod(1), CreatePod(2)]
    simulation.settle(10)
    assert simulation.status["state"] == "Running"


def test_api_server_is_asked_about_the_template_of_a_suspended_job_that_has_trained() -> None:
    simulation = running()
    suspend(simulation)
    simulation.settle(10)
    assert TryPod() not in simulation.reconcile().actions, "its pods were made from it"
    simulation.job = replace(simulation.job, generation=simulation.job.generation + 1)
    assert TryPod() in simulation.reconcile().actions


def test_refusal_of_pods_of_an_older_spec_does_not_hold_those_of_the_newest() -> None:
    refused = {
        key: FailedWrite("refused", NOW + 60, lasting=True) for key in (DRY_RUN, PODS, STATUS)
    }
    job = a_job(suspend=True)
    kept = plan(job, observed(), Memory(answers=Answers(failed=refused, generation=1))).memory
    assert set(kept.answers.failed) == {DRY_RUN, PODS, STATUS}
    kept = plan(replace(job, generation=2), observed(), kept).memory
    assert (set(kept.answers.failed), kept.answers.generation) == ({STATUS}, 2)


async def test_all_pods_after_a_resume_are_made_from_the_changed_template(running: Running) -> None:
    def images() -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in running.cluster.pods()}

    manifest: dict[str, Any] = a_manifest()
    changed = copy.deepcopy(manifest)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "torch:new"
    running.cluster.apply_job(manifest)
    await running.until_pods(3)
    manifest["spec"]["suspend"] = changed["spec"]["suspend"] = True
    running.cluster.apply_job(manifest)
    await running.until(
        lambda: all(pod["metadata"].get("deletionTimestamp") for pod in running.cluster.pods())
    )
    await running.until(
        lambda: running.condition("Suspended").startswith(
            "Suspending: spec.suspend is true: 3 pods are left"
        )
    )
    for pod in running.cluster.pods():
        running.cluster.finish_deletion("default", pod["metadata"]["name"])
    await running.until(lambda: running.condition("Suspended").startswith("JobSuspended"))
    assert images() == set()
    running.cluster.apply_job(changed)
    running.cluster.apply_job({**changed, "spec": {**changed["spec"], "suspend": False}})
    await running.until_pods(3)
    assert images() == {"torch:new"}
