"""What the store knows, and what it does not let itself be told."""

from typing import Any

import pytest
from elastic_pytorch_operator.job import InvalidJob, Job
from elastic_pytorch_operator.manifests import worker_pod
from elastic_pytorch_operator.stock_manifests import stock_worker_pod, store_pod
from elastic_pytorch_operator.store import Store
from operator_builders import KEY, a_job, a_manifest


def pod(index: int = 0, *, version: int = 1, uid: str = "", node: str = "node-0", phase: str = "Running") -> dict[str, Any]:
    found = worker_pod(a_job(), index, "x7k2p", "")
    found["metadata"] |= {"uid": uid or f"uid-{index}", "resourceVersion": str(version)}
    found["spec"]["nodeName"] = node
    return {**found, "status": {"phase": phase}}


def node(name: str, *, ready: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def primed(*pods: dict[str, Any]) -> Store:
    store = Store()
    store.replace_all([a_manifest()], pods, [node("node-0")], 1.0)
    return store


def test_knows_jobs_and_their_pods() -> None:
    store = primed(pod(1), pod(0))
    assert isinstance(store.job(KEY), Job)
    assert [view.index for view in store.pods_of("uid-lm")] == [0, 1]
    assert store.worker("default", "lm-worker-0-x7k2p", "uid-0") == (KEY, "uid-lm")
    assert store.worker("default", "lm-worker-0-x7k2p", "another") is None


def test_job_that_cannot_be_read_is_kept_with_what_is_wrong() -> None:
    store = Store()
    assert store.apply_job(a_manifest(minimum=9), 1.0) == {KEY}
    assert isinstance(store.job(KEY), InvalidJob)


def test_news_that_is_old_is_ignored() -> None:
    store = primed(pod(0, version=5))
    assert store.apply_pod(pod(0, version=4, phase="Pending"), 2.0) == set()
    assert store.apply_pod(pod(0, version=6, phase="Failed"), 2.0) == {KEY}
    assert store.pods_of("uid-lm")[0].phase == "Failed"


def test_end_of_a_pod_whose_name_was_taken_is_ignored() -> None:
    store = primed(pod(0, uid="new"))
    assert store.remove_pod(pod(0, uid="old")) == set()
    assert store.remove_pod(pod(0, uid="new")) == {KEY}
    assert store.pods_of("uid-lm") == ()


def test_list_removes_ghosts_but_not_what_came_while_listing() -> None:
    store = primed(pod(0))
    store.apply_pod(pod(1), 7.0)
    assert store.replace_all([a_manifest()], [], [node("node-0")], 5.0) == {KEY}
    assert [view.index for view in store.pods_of("uid-lm")] == [1]
    assert store.replace_all([], [], [], 8.0) == {KEY}
    assert store.job(KEY) is None


def test_node_news_matters_to_the_jobs_with_pods_there_and_only_if_it_is_news() -> None:
    store = primed(pod(0))
    assert store.apply_node(node("node-0")) == set()
    assert store.apply_node(node("node-0", ready="Unknown")) == {KEY}
    assert store.apply_node(node("elsewhere")) == set()
    assert store.remove_node(node("node-0")) == {KEY}


def test_pod_dead_before_the_operator_started_is_marked_for_good() -> None:
    store = primed(pod(0, phase="Failed"))
    store.apply_pod(pod(1, phase="Failed"), 2.0)
    store.apply_pod(pod(0, version=9, phase="Failed"), 2.0)
    assert [view.seen_dead_at_start for view in store.pods_of("uid-lm")] == [True, False]


def test_stores_of_stock_rendezvous_are_no_workers() -> None:
    found = {**store_pod(a_job(rendezvous={"backend": "c10d"}), "x7k2p", 4), "status": {"phase": "Running"}}
    found["metadata"] |= {"uid": "uid-s", "resourceVersion": "1"}
    store = primed(pod(0), found)
    assert [view.name for view in store.pods_of("uid-lm")] == ["lm-worker-0-x7k2p"]
    [view] = store.stores_of("uid-lm")
    assert (view.name, view.role, view.rendezvous) == ("lm-store-x7k2p", "store", 4)
    assert store.worker("default", "lm-store-x7k2p", "uid-s") is None, "its token, had it one, would speak for no worker"


def test_pod_of_another_namespace_is_nobodys_worker() -> None:
    store = primed(pod(0))
    forged = pod(0, uid="forged")
    forged["metadata"]["namespace"] = "elsewhere"
    store.apply_pod(forged, 2.0)
    assert store.worker("elsewhere", forged["metadata"]["name"], "forged") is None
    assert [view.uid for view in store.pods_of("uid-lm")] == [pod(0)["metadata"]["uid"]]


@pytest.mark.parametrize(
    ("container", "stock", "authorities", "uid", "heard"),
    [
        ("pytorch", False, "", "uid-lm", True),  # as release 0.1 made them
        ("pytorch", False, "PEM", "uid-lm", False),
        ("sidecar", False, "PEM", "uid-lm", False),
        ("pytorch", True, "PEM", "uid-lm", False),
        ("pytorch", False, "", "another", False),
    ],
)
def test_no_template_of_today_has_agents_heard_without_tls(
    container: str, stock: bool, authorities: str, uid: str, heard: bool
) -> None:
    containers = [{"name": "pytorch", "image": "torch"}, {"name": "sidecar", "image": "proxy"}]
    for each in containers:
        each["env"] = (
            [{"name": "ELASTIC_PYTORCH_OPERATOR_URL", "value": "http://operator"}] if each["name"] == container else []
        )
    job = a_job(template={"spec": {"containers": containers}})
    made = stock_worker_pod(job, 0, "x", 1) if stock else worker_pod(job, 0, "x", "http://operator", authorities=authorities)
    made["metadata"] |= {"uid": "uid-0", "resourceVersion": "1"}
    made["metadata"]["ownerReferences"][0]["uid"] = uid
    assert primed(made).has_plain_agents is heard


def test_pod_that_cannot_be_made_is_stuck_since_that_began() -> None:
    def waiting(reason: str, version: int) -> dict[str, Any]:
        found = pod(0, version=version, phase="Pending")
        found["status"]["containerStatuses"] = [{"name": "pytorch", "state": {"waiting": {"reason": reason}}}]
        return found

    store = primed(pod(0, version=1, phase="Pending"))
    for version, (reason, now) in enumerate([("ErrImagePull", 400.0), ("ImagePullBackOff", 410.0)], start=2):
        store.apply_pod(waiting(reason, version), now)
    assert store.pods_of("uid-lm")[0].stuck_since == 400.0
    store.apply_pod(waiting("ContainerCreating", 8), 420.0)
    store.apply_pod(waiting("ErrImagePull", 9), 430.0)
    assert store.pods_of("uid-lm")[0].stuck_since == 430.0


def test_dead_of_before_are_no_news_to_an_operator_that_begins_to_lead() -> None:
    store = primed(pod(0), pod(1))
    store.apply_pod(pod(1, version=9, phase="Failed"), 2.0)
    store.bury_the_dead()
    assert [view.seen_dead_at_start for view in store.pods_of("uid-lm")] == [False, True]
