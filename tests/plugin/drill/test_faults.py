"""Which faults a job can be put to, and why not."""

from typing import Any

import pytest
from elastic_pytorch_client.drill.faults import Fault, PlannedFault, plan_faults, refusal
from elastic_pytorch_client.reading.job_view import view_job

from tests.plugin.drill.drilled_cluster import a_training_job, a_worker_pod, trains


def plan(job: dict[str, Any], pods: list[dict[str, Any]] | None = None) -> dict[Fault, PlannedFault]:
    pods = pods if pods is not None else [a_worker_pod(index) for index in range(job["spec"]["replicas"])]
    return {fault.fault: fault for fault in plan_faults(job, pods, list(Fault))}


def rule(action: str, codes: list[int], operator: str = "In") -> dict[str, Any]:
    return {"failurePolicy": {"rules": [{"action": action, "onExitCodes": {"operator": operator, "values": codes}}]}}


def test_all_faults_of_a_plain_job() -> None:
    planned = plan(a_training_job())
    assert list(planned) == [Fault.PROCESS, Fault.POD, Fault.NODE, Fault.SCALE]
    assert not [fault.skipped for fault in planned.values() if fault.skipped]
    assert [target.pod for target in planned[Fault.PROCESS].targets] == ["lm-worker-2-a"]
    assert [target.uid for target in planned[Fault.POD].targets] == ["uid-lm-worker-2-a"]
    assert (planned[Fault.NODE].node, planned[Fault.SCALE].replicas) == ("node-1", 4)
    assert "20 now" in planned[Fault.PROCESS].cost


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"status": {"conditions": [{"type": "Complete", "status": "True"}], "state": "Complete"}}, "has ended", id="end"
        ),
        pytest.param({"spec": {"suspend": True}}, "is suspended", id="suspended"),
        pytest.param({"spec": {"managedBy": "example.com/other"}}, "is managed by", id="another operator"),
        pytest.param({"spec": {"rendezvous": {"backend": "c10d"}}}, "stock torchrun", id="stock"),
        pytest.param({"status": trains([a_worker_pod(0)], 3)}, "not all 3 workers", id="a worker is missing"),
        pytest.param({"metadata": {"generation": 2}}, "not all 3 workers", id="the operator has not seen the spec"),
        pytest.param({}, "", id="trains"),
    ],
)
def test_refusal(change: dict[str, dict[str, Any]], words: str) -> None:
    job = a_training_job()
    for part, fields in change.items():
        job[part] |= fields
    said = refusal(view_job(job))
    assert words in said
    assert bool(said) is bool(words)


@pytest.mark.parametrize(
    ("job", "skipped"),
    [
        pytest.param(
            a_training_job(3, minimum=3),
            {Fault.POD: "3 workers at least, and 2 would be left", Fault.NODE: "3 workers at least"},
            id="no room to lose a worker",
        ),
        pytest.param(
            a_training_job(3, minimum=3, maximum=3),
            {Fault.POD: "at least", Fault.NODE: "at least", Fault.SCALE: "no other size"},
            id="one size",
        ),
        pytest.param(
            a_training_job(3, minimum=None, maximum=None),
            {Fault.POD: "fixed size", Fault.NODE: "fixed size", Fault.SCALE: "fixed size"},
            id="a fixed size",
        ),
        pytest.param(
            a_training_job(3, minimum=1, resizePolicy={"allowedReplicas": [3, 4]}),
            {Fault.POD: "3 workers at least", Fault.NODE: "3 workers at least"},
            id="no smaller size is allowed",
        ),
        pytest.param(a_training_job(**rule("FailJob", [137])), {Fault.PROCESS: "rules[0] fails the job"}, id="a rule fails it"),
        pytest.param(a_training_job(**rule("FailJob", [1], "NotIn")), {Fault.PROCESS: "fails the job"}, id="all codes but one"),
        pytest.param(a_training_job(**rule("FailJob", [1])), {}, id="another code"),
        pytest.param(a_training_job(**rule("Count", [137])), {}, id="counted, with some left"),
        pytest.param(
            a_training_job(failurePolicy={"maxFailures": 0, **rule("Count", [137])["failurePolicy"]}),
            {Fault.PROCESS: "no failure is left"},
            id="counted, with none left",
        ),
        pytest.param(
            a_training_job(failurePolicy={"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]}),
            {Fault.NODE: "when a pod is evicted"},
            id="a rule about lost pods",
        ),
        pytest.param(
            a_training_job(templateRef={"name": "gpu"}),
            dict.fromkeys((Fault.PROCESS, Fault.POD, Fault.NODE), "its template may say what a failure does to it"),
            id="rules of a template",
        ),
        pytest.param(
            a_training_job(templateRef={"name": "gpu"}, failurePolicy={"maxFailures": 3, "rules": []}),
            {},
            id="rules of its own",
        ),
    ],
)
def test_faults_that_are_left_out(job: dict[str, Any], skipped: dict[Fault, str]) -> None:
    found = {fault: planned.skipped for fault, planned in plan(job).items() if planned.skipped}
    assert set(found) == set(skipped)
    for fault, words in skipped.items():
        assert words in found[fault]


def test_scales_down_where_there_is_no_larger_size() -> None:
    assert plan(a_training_job(4))[Fault.SCALE].replicas == 3
    assert plan(a_training_job(3, resizePolicy={"allowedReplicas": [2, 3]}))[Fault.SCALE].replicas == 2


def test_only_pods_of_the_job_itself_are_targets() -> None:
    older = a_worker_pod(2, uid="uid-of-an-earlier-job-of-this-name")
    going = a_worker_pod(1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    planned = plan(a_training_job(), [a_worker_pod(0), going, older, a_worker_pod(9)])
    assert [target.pod for target in planned[Fault.POD].targets] == ["lm-worker-0-a"]
    assert plan(a_training_job(), [older])[Fault.PROCESS].skipped


def test_all_workers_of_a_drained_node_leave() -> None:
    pods = [a_worker_pod(0, node="a"), a_worker_pod(1, node="b"), a_worker_pod(2, node="b"), a_worker_pod(3, node="a")]
    node = plan(a_training_job(4), pods)[Fault.NODE]
    assert (node.node, [target.pod for target in node.targets]) == ("b", ["lm-worker-1-a", "lm-worker-2-a"])
    assert "the node with the fewest" in plan(a_training_job(4, minimum=3), pods)[Fault.NODE].skipped


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ({"step": 9, "commitEverySteps": 1}, "at most 1 steps"),
        ({"step": 9}, "does not report its checkpoints"),
        ({}, "reports no steps"),
    ],
)
def test_steps_that_may_be_done_again(progress: dict[str, int], words: str) -> None:
    job = a_training_job()
    job["status"]["progress"] = progress
    assert words in plan(job)[Fault.PROCESS].cost
