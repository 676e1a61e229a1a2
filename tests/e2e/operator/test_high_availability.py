"""The leading operator is killed, cut short or rolled over, and nothing is made twice."""

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from measure.kind_cluster import OPERATOR_NAMESPACE, OPERATORS

from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import (
    ENDLESS,
    SLICES,
    JobUnderTest,
    StartJob,
    ask_operator,
    found_by_agents,
    groups_told,
    leading_operator,
    operator_log,
    run_kubectl,
    start_whole,
)
from tests.e2e.kind_nodes import docker, killed, without_controller_manager
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]


@pytest.fixture
def job(start_shared_job: StartJob) -> JobUnderTest:
    """Three workers that train; the tests that do something to their operators share the job."""
    return start_whole(start_shared_job, args=ENDLESS)


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def kill(operator: dict[str, Any]) -> None:
    """No operator gets to say goodbye: its process is killed first, then its pod is removed."""
    kill_process(operator)
    run_kubectl(
        "-n", OPERATOR_NAMESPACE, "delete", "pod", name_of(operator), "--grace-period=0", "--force"
    )


def kill_process(operator: dict[str, Any]) -> None:
    [container] = operator["status"]["containerStatuses"]
    task = container["containerID"].removeprefix("containerd://")
    docker(
        "exec",
        operator["spec"]["nodeName"],
        "ctr",
        "-n",
        "k8s.io",
        "task",
        "kill",
        "--signal",
        "SIGKILL",
        task,
    )


def pods_made(job: JobUnderTest) -> list[str]:
    """Every pod that was ever made for a job, by the kubelets' events and the pods there."""
    events = json.loads(
        job.kubectl("get", "events", "--field-selector=reason=Scheduled", "-o", "json")
    )["items"]
    return sorted(
        {event["involvedObject"]["name"] for event in events} | {name_of(pod) for pod in job.pods()}
    )


def longest_pause(job: JobUnderTest, pod: str, since: float) -> float:
    """Of rank 0's steps since a moment, in seconds."""
    told = [
        float(line.partition("time=")[2].split()[0])
        for line in job.logs(pod)
        if line.startswith("STEP")
    ]
    return max((b - a for a, b in pairwise([at for at in told if at > since])), default=0.0)


def test_rollout_is_not_noticed_by_training(job: JobUnderTest) -> None:
    leader, pods, since = job.members()[0], pods_made(job), time.time()
    first, before, groups = job.status["round"], leading_operator(), len(groups_told(job, leader))
    run_kubectl(
        "-n", OPERATOR_NAMESPACE, "rollout", "restart", "deployment/elastic-pytorch-operator"
    )
    run_kubectl(
        "-n",
        OPERATOR_NAMESPACE,
        "rollout",
        "status",
        "deployment/elastic-pytorch-operator",
        "--timeout=100s",
    )
    began = time.monotonic()
    leading_operator(other_than=name_of(before))
    print(f"another operator led {time.monotonic() - began:.1f} s after the rollout")
    assert job.status["round"] == first
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    status = job.until_world(2, 60)
    assert (status["round"], status["failures"]) == (first + 1, 0)
    assert pods_made(job) == pods
    until(lambda: len(groups_told(job, leader)) > groups, "the smaller group")
    job.until_stepping(leader, 2)
    assert longest_pause(job, leader, since) < 20
    assert len(groups_told(job, leader)) == groups + 1, "one round more, the smaller one"


def test_leader_that_has_lost_its_lease_leads_again_in_the_same_container(
    job: JobUnderTest,
) -> None:
    pods, first = pods_made(job), job.status["round"]
    containers = container_ids()
    taken = '{"spec": {"holderIdentity": "somebody-else"}}'
    run_kubectl(
        "-n",
        OPERATOR_NAMESPACE,
        "patch",
        "lease",
        "elastic-pytorch-operator",
        "--type=merge",
        f"--patch={taken}",
    )
    until(lambda: lease_holder() != "somebody-else", "an operator to take the lease over")
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    status = job.until_world(2, 60)
    assert (status["round"], status["failures"]) == (first + 1, 0)
    assert pods_made(job) == pods
    assert container_ids() == containers, "no container was started again"
    assert name_of(leading_operator()) == lease_holder()


def test_leader_killed_during_a_resize(job: JobUnderTest) -> None:
    before, pods = leading_operator(), pods_made(job)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=4")
    job.until(lambda _: len(job.pods()) == 4, "the pod of the newcomer")
    kill(before)
    began = time.monotonic()
    leading_operator(other_than=name_of(before))
    print(f"another operator led {time.monotonic() - began:.1f} s after the first was killed")
    status = job.until_world(4, 60)
    assert status["failures"] == 0
    assert len(pods_made(job)) == len(pods) + 1, "none was made twice"
    indices = sorted(
        pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"] for pod in job.pods()
    )
    assert indices == ["0", "1", "2", "3"]


@pytest.mark.long
def test_new_leader_is_heard_while_the_controller_manager_is_away(job: JobUnderTest) -> None:
    before = leading_operator()
    with without_controller_manager():
        kill(before)
        leading_operator(other_than=name_of(before))
        job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
        status = job.until_world(2, 60)
        assert status["failures"] == 0
    # What the Deployment's status says is of the time before.
    until(lambda: ready_operators() >= 2, "an operator in the place of the one that was killed")


def test_leaders_node_dies_with_a_worker(job: JobUnderTest) -> None:
    pods = pods_made(job)
    victim, node = worker_beside_the_leader(job)
    before = leading_operator()
    began = time.monotonic()
    with killed(node):
        job.until(
            lambda s: s["worldSize"] >= 2 and victim not in job.members(), "a group without it", 60
        )
        print(
            f"a group without it was declared {time.monotonic() - began:.1f} s after the node's end"
        )
        status = job.until(
            lambda s: s["worldSize"] == 3 and victim not in job.members(),
            "a whole group without it",
            110,
        )
        assert status["failures"] == 0
        assert len(pods_made(job)) <= len(pods) + 2, (
            "one replacement, and one more if the first was put on the dead node"
        )
        assert name_of(leading_operator(other_than=name_of(before))) != name_of(before)


def worker_beside_the_leader(job: JobUnderTest) -> tuple[str, str]:
    """A worker, not rank 0, alone on its node with the leading operator; moves the lead for it."""
    for _ in range(6):
        until_all_are_ready()
        leader = leading_operator()
        node_of = {
            worker["name"]: worker["node"] for worker in job.status["workers"] if "node" in worker
        }
        beside = [name for name, node in node_of.items() if node == leader["spec"]["nodeName"]]
        if len(beside) == 1 and beside[0] in job.members()[1:]:
            return beside[0], node_of[beside[0]]
        run_kubectl("-n", OPERATOR_NAMESPACE, "delete", "pod", name_of(leader))
        leading_operator(other_than=name_of(leader))
    raise AssertionError(f"no operator leads beside one worker other than rank 0: {node_of}")


def lease_holder() -> str:
    return run_kubectl(
        "-n",
        OPERATOR_NAMESPACE,
        "get",
        "lease",
        "elastic-pytorch-operator",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ).stdout


def operators() -> list[dict[str, Any]]:
    return Resource("v1", "pods", OPERATOR_NAMESPACE).list(OPERATORS)


def container_ids() -> set[str]:
    return {
        status["containerID"]
        for pod in operators()
        for status in pod["status"]["containerStatuses"]
    }


def test_address_of_the_leader_that_somebody_removes_comes_back() -> None:
    leader = leading_operator()
    [written] = [found for found in slices_of_the_service() if found["endpoints"]]
    change = json.dumps({"endpoints": [], "ports": []})
    run_kubectl(
        "-n",
        OPERATOR_NAMESPACE,
        "patch",
        "endpointslice",
        name_of(written),
        "--type=merge",
        "-p",
        change,
    )
    until(
        lambda: [
            found for found in slices_of_the_service() if found["endpoints"] and found["ports"]
        ],
        "the address to be back",
    )
    assert found_by_agents() == [name_of(leader)] == [lease_holder()]


def until_all_are_ready() -> None:
    """The container of an operator that was killed starts again after a while."""
    run_kubectl(
        "-n",
        OPERATOR_NAMESPACE,
        "rollout",
        "status",
        "deployment/elastic-pytorch-operator",
        "--timeout=100s",
    )


def ready_operators() -> int:
    return sum(
        state["ready"]
        for pod in operators()
        for state in pod["status"].get("containerStatuses") or ()
    )


def slices_of_the_service() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        run_kubectl(
            "-n", OPERATOR_NAMESPACE, "get", "endpointslices", "-l", SLICES, "-o", "json"
        ).stdout
    )["items"]
    return found


def test_operators_are_well_and_say_who_leads() -> None:
    until_all_are_ready()
    leader = name_of(leading_operator())
    running = [name_of(pod) for pod in operators() if "deletionTimestamp" not in pod["metadata"]]
    assert leader in running
    for name in running:
        assert ask_operator(name, "healthz") == ask_operator(name, "readyz") == "ok"
        metrics = metrics_that_say_whether_it_leads(name, leads=name == leader)
        assert name == leader or "elastic_pytorch_jobs{" not in metrics, (
            "the leader tells where there are jobs"
        )
        assert 'rest_client_requests_total{code="200",method="GET"}' in metrics


def metrics_that_say_whether_it_leads(operator: str, *, leads: bool) -> str:
    """Waits for such metrics: an operator repeats a text, perhaps an old one, for seconds."""
    sign = f'leader_election_master_status{{name="elastic-pytorch-operator"}} {float(leads)}'
    return until(lambda: text if sign in (text := ask_operator(operator, "metrics")) else "", sign)


def test_only_the_leader_is_behind_the_service() -> None:
    until_all_are_ready()
    leader = leading_operator()
    service = json.loads(
        run_kubectl(
            "-n", OPERATOR_NAMESPACE, "get", "service", "elastic-pytorch-operator", "-o", "json"
        ).stdout
    )
    assert "selector" not in service["spec"], "nothing but the leader says where it leads"
    assert {name_of(found) for found in slices_of_the_service()} == {
        f"elastic-pytorch-operator-ipv{family}" for family in (4, 6)
    }
    assert found_by_agents() == [name_of(leader)] == [lease_holder()]
    endpoints = [there for found in slices_of_the_service() for there in found["endpoints"] or ()]
    assert [there["addresses"] for there in endpoints] == [[leader["status"]["podIP"]]]
    assert [there["nodeName"] for there in endpoints] == [leader["spec"]["nodeName"]]
    assert ready_operators() >= 2
    assert '"message": "leading"' in operator_log()
