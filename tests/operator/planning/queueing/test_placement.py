from dataclasses import replace

from elastic_pytorch_operator.model.actions import CreatePod, CreateService
from elastic_pytorch_operator.planning.queueing.placement import displaced_pods, grant_pods
from elastic_pytorch_operator.planning.queueing.quota import NO_LIMIT, find_quota

from tests.operator.builders import a_pod, a_queued_job, a_workload, an_extra, observed

SPOT = {"extraWorkers": {"nodeSelector": {"capacity": "spot"}}}


def test_base_is_filled_before_the_extras_and_no_pod_is_made_without_a_place() -> None:
    there = replace(observed([a_pod(0, workload="lm-base")]), workloads=(a_workload(), a_workload(1)))
    asked = [CreateService(), CreatePod(1), CreatePod(2), CreatePod(3)]
    service, *pods = grant_pods(there, find_quota(a_queued_job(), 4, there), asked)
    assert service == CreateService()
    assert [(pod.index, pod.grant.workload, pod.grant.extra) for pod in pods if isinstance(pod, CreatePod) and pod.grant] == [
        (1, "lm-base", False),
        (2, "lm-extra-1", True),
    ]
    assert len(pods) == 2
    assert grant_pods(there, NO_LIMIT, asked) == asked


def test_place_of_a_pod_that_is_on_its_way_is_not_given_away_again() -> None:
    pods = (a_pod(0, workload="lm-base"), a_pod(1, workload="lm-base"))
    there = replace(observed(pods), workloads=(a_workload(), a_workload(1), a_workload(2)), being_created={2: "lm-extra-2"})
    (created,) = grant_pods(there, find_quota(a_queued_job(), 4, there), [CreatePod(2), CreatePod(3)])
    assert isinstance(created, CreatePod) and created.grant is not None
    assert (created.index, created.grant.workload) == (3, "lm-extra-1")


def test_replacement_takes_the_place_of_a_pod_that_is_being_deleted() -> None:
    pods = (a_pod(0, workload="lm-base"), a_pod(1, workload="lm-base", deleting=True))
    there = replace(observed(pods), workloads=(a_workload(),))
    (created,) = grant_pods(there, find_quota(a_queued_job(), 4, there), [CreatePod(1)])
    assert isinstance(created, CreatePod)
    assert created.grant is not None


def test_only_pods_whose_nodes_kueue_has_chosen_belong_to_one_workload() -> None:
    pods = (
        a_pod(0, topology=True, workload="lm-base"),
        a_pod(1, topology=True, workload="lm-extra-1"),
        a_pod(2, workload="lm-extra-1"),
    )
    there = replace(observed(pods), workloads=(a_workload(), a_workload(1, "evicted")))
    assert displaced_pods(a_queued_job(), there, find_quota(a_queued_job(), 4, there)) == {"w1"}
    assert displaced_pods(a_queued_job(), there, NO_LIMIT) == frozenset()


def test_every_pod_belongs_to_one_workload_where_extras_have_other_flavors() -> None:
    job = a_queued_job(scheduling=SPOT)
    pods = (a_pod(0, workload="lm-base"), a_pod(1, workload="lm-extra-1"), a_pod(2, workload="lm-extra-2"))
    extras = (an_extra(job, 1, "evicted"), an_extra(job, 2))
    there = replace(observed(pods), workloads=(a_workload(), *extras))
    assert displaced_pods(job, there, find_quota(job, 4, there)) == {"w1"}
