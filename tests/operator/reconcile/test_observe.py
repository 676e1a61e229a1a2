from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.reconcile.observe import observe, recover_round

from tests.operator.builders import NOW, a_job, a_manifest, a_pod, a_worker_pod, an_agent

JOB = a_job()
PODS = [a_pod(i) for i in range(3)]


def test_members_are_those_that_report_the_newest_round() -> None:
    agents = {f"w{i}": an_agent(f"w{i}", round_=7 - (i == 2), rank=i, newest=7) for i in range(3)}
    found = recover_round(PODS, agents, NOW)
    assert found is not None
    assert (found.number, found.workers, found.size) == (7, ("w0", "w1"), 3)


def test_round_that_none_has_taken_up_is_empty() -> None:
    agents = {f"w{i}": an_agent(f"w{i}", "ready", round_=7, rank=i, newest=8) for i in range(3)}
    found = recover_round(PODS, agents, NOW)
    assert found is not None
    assert (found.number, found.size) == (8, 0)


def test_agents_that_know_of_no_round_make_none() -> None:
    agents = {"w0": an_agent("w0", "ready", round_=0, world_size=0)}
    assert recover_round(PODS, agents, NOW) is None


def test_pod_whose_deletion_was_asked_for_is_deleted_before_the_api_server_says_so() -> None:
    cache = Cache()
    pods = [a_worker_pod(JOB, index) for index in range(2)]
    for index, pod in enumerate(pods):
        pod["metadata"] |= {"uid": f"uid-{index}", "resourceVersion": "1"}
    cache.replace_all([a_manifest()], pods, [], 1.0)
    found = observe(JOB, cache, AgentRegistry(), Observed(NOW, ""), {"uid-1"})
    assert [pod.deleting for pod in found.pods] == [False, True]
