import gc
import weakref
from typing import Any

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.changes import identify
from elastic_pytorch_operator.informer.node_index import NodeIndex
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.manifests.stock_pods import store_pod
from elastic_pytorch_operator.model.announced_ends import Certainty, parse_marks
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.spec.job import Job, JobKey
from elastic_pytorch_operator.spec.job_size import MAX_BYTES, MAX_VALUES

from tests.operator.builders import KEY, OWNER, a_job, a_manifest, a_worker_pod
from tests.operator.informer.test_node_index import node
from tests.situations import situations


def pod(
    index: int = 0, *, version: int = 1, uid: str = "", node: str = "node-0", phase: str = "Running"
) -> dict[str, Any]:
    found = a_worker_pod(a_job(), index)
    found["metadata"] |= {"uid": uid or f"uid-{index}", "resourceVersion": str(version)}
    found["spec"]["nodeName"] = node
    return {**found, "status": {"phase": phase}}


def in_namespace(found: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**found, "metadata": {**found["metadata"], "namespace": namespace}}


def job(**metadata: Any) -> dict[str, Any]:
    found = a_manifest()
    return {**found, "metadata": {**found["metadata"], **metadata}}


def primed(*pods: dict[str, Any]) -> Cache:
    cache = Cache()
    cache.replace_all([a_manifest()], pods, [node("node-0")], 1.0)
    return cache


def test_knows_jobs_and_their_pods() -> None:
    cache = primed(pod(1), pod(0))
    assert isinstance(cache.job(KEY), Job)
    assert [view.index for view in cache.pods.workers_of(OWNER)] == [0, 1]
    assert cache.worker("default", "lm-worker-0-x7k2p", "uid-0") == (KEY, "uid-lm")
    assert cache.worker("default", "lm-worker-0-x7k2p", "another") is None


def test_announced_end_of_a_node_concerns_the_jobs_there() -> None:
    cache = Cache(node_index=NodeIndex(parse_marks(["acme.io/going"], Certainty.SURE)))
    cache.replace_all([a_manifest()], [pod(0)], [node("node-0")], 1.0)
    going = node("node-0", version=2)
    going["metadata"]["labels"] = {"acme.io/going": "yes"}
    assert cache.apply("Node", going, 2.0) == {KEY}
    assert cache.nodes["node-0"].end is not None
    assert cache.apply("Node", node("node-0", version=3), 3.0) == {KEY}
    assert cache.nodes["node-0"].end is None


def test_job_that_cannot_be_read_is_kept_with_what_is_wrong() -> None:
    cache = Cache()
    assert cache.apply(names.KIND, a_manifest(minimum=9), 1.0) == {KEY}
    found = cache.job(KEY)
    assert isinstance(found, Job)
    assert (found.wanted, found.problem.split(":")[0]) == (0, "spec.maxReplicas")


class Part(dict[str, Any]):
    """A part of an object, of which can be told whether anything has kept it."""


@situations("notes", {"bytes": "x" * MAX_BYTES, "values": [{}] * MAX_VALUES})
def test_of_a_job_that_is_too_large_nothing_keeps_the_spec(notes: Any) -> None:
    found, cache = a_manifest(notes=Part(a=notes), suspend=True), Cache()
    found["metadata"] |= {
        "labels": Part({f"team.example.com/{n}": "x" for n in range(100)}),
        "managedFields": [Part()],
    }
    metadata = found["metadata"]
    parts = (found["spec"]["notes"], metadata["labels"], *metadata["managedFields"])
    kept = list(map(weakref.ref, parts))
    assert cache.observe_change(names.KIND, "ADDED", found, 1.0) == {KEY}
    del found, metadata, parts
    gc.collect()
    assert [part() for part in kept] == [None] * 3
    read = cache.job(KEY)
    assert isinstance(read, Job)
    assert (read.suspend, read.wanted, read.problem.split(":")[0]) == (True, 0, "spec")
    assert cache.job_manifest(KEY)["spec"] == {"replicas": 3, "suspend": True}


@situations(
    "change",
    {
        "its status": {},
        "its size": {"spec": {**a_manifest()["spec"], "replicas": 2}, "generation": 2},
        "its spec, which is not valid": {
            "spec": {**a_manifest()["spec"], "replicas": -1},
            "generation": 2,
        },
        "its queue": {"labels": {kueue.LABEL_QUEUE: "team"}},
        "its deletion": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    },
)
def test_job_of_which_something_has_changed_is_what_a_cache_finds_that_knew_nothing_of_it(
    change: dict[str, Any],
) -> None:
    metadata = {**change}
    spec = metadata.pop("spec", a_manifest()["spec"])
    status = {"progress": {"step": 8}}
    after = {**job(**metadata, resourceVersion="2"), "spec": spec, "status": status}
    known, new = Cache(), Cache()
    known.apply(names.KIND, job(), 0.0)
    for cache in (known, new):
        cache.apply(names.KIND, after, 1.0)
    assert known.job(KEY) == new.job(KEY)


def test_news_that_is_old_is_ignored() -> None:
    cache = primed(pod(0, version=5))
    assert cache.apply("Pod", pod(0, version=4, phase="Pending"), 2.0) == set()
    assert cache.apply("Pod", pod(0, version=6, phase="Failed"), 2.0) == {KEY}
    assert cache.pods.workers_of(OWNER)[0].phase == "Failed"


def test_end_of_a_pod_whose_name_was_taken_is_ignored() -> None:
    cache = primed(pod(0, uid="new"))
    assert cache.remove("Pod", identify(pod(0, uid="old")), 2.0) == set()
    assert cache.remove("Pod", identify(pod(0, uid="new")), 2.0) == {KEY}
    assert cache.pods.workers_of(OWNER) == ()


def test_list_removes_ghosts_but_not_what_came_while_listing() -> None:
    cache = primed(pod(0))
    cache.apply("Pod", pod(1), 7.0)
    assert cache.replace_all([a_manifest()], [], [node("node-0")], 5.0) == {KEY}
    assert [view.index for view in cache.pods.workers_of(OWNER)] == [1]
    assert cache.replace_all([], [], [], 8.0) == {KEY}
    assert cache.job(KEY) is None


def test_node_news_matters_to_the_jobs_with_pods_there_and_only_if_it_is_news() -> None:
    cache = primed(pod(0))
    assert cache.apply("Node", node("node-0"), 2.0) == set()
    assert cache.apply("Node", node("node-0", ready="Unknown"), 2.0) == {KEY}
    assert cache.apply("Node", node("elsewhere"), 2.0) == set()
    assert cache.remove("Node", identify(node("node-0")), 2.0) == {KEY}


def test_node_is_removed_once_its_deletion_is_told_and_until_another_takes_its_name() -> None:
    cache = primed(pod(0))
    assert "elsewhere" not in cache.nodes
    assert cache.remove("Node", identify(node("node-0", version=4)), 2.0) == {KEY}
    assert cache.nodes["node-0"] == NodeView("node-0", ready=False, removed=True)
    assert cache.apply("Node", node("node-0", version=3), 3.0) == set(), (
        "an older list does not bring it back"
    )
    assert cache.apply("Node", node("node-0", uid="another", version=5), 4.0) == {KEY}
    assert cache.nodes["node-0"].ready
    assert cache.remove("Node", identify(node("node-0", version=4)), 5.0) == set(), (
        "that was the one before it"
    )
    assert cache.nodes["node-0"].ready


def test_list_removes_nodes_but_not_those_that_came_while_listing() -> None:
    cache = primed(pod(0), pod(1, node="node-1"))
    cache.apply("Node", node("node-1"), 7.0)
    assert cache.replace_all([a_manifest()], [pod(0), pod(1, node="node-1")], [], 5.0) == {KEY}
    assert (cache.nodes["node-0"].removed, cache.nodes["node-1"].removed) == (True, False)
    cache.apply("Node", node("node-1", version=9), 9.0)
    cache.replace_all([a_manifest()], [pod(0), pod(1, node="node-1")], [], 8.0)
    assert cache.nodes["node-1"].removed, "it has been known for longer than the list took"


def test_removed_node_is_forgotten_once_no_pod_is_on_it() -> None:
    cache = primed(pod(0))
    cache.remove("Node", identify(node("node-0")), 2.0)
    cache.replace_all([a_manifest()], [pod(0)], [], 3.0)
    assert set(cache.nodes) == {"node-0"}
    cache.replace_all([a_manifest()], [], [], 4.0)
    assert cache.nodes == {}


def test_pod_that_had_ended_before_its_deletion_was_asked_for() -> None:
    def told(version: int, *, ended: bool, deleting: bool) -> None:
        found = pod(0, version=version)
        state = {"terminated": {"exitCode": 0}} if ended else {"running": {}}
        found["status"]["containerStatuses"] = [
            {"name": "pytorch", "state": state},
            {"name": "proxy", "state": {"running": {}}},
        ]
        cache.apply(
            "Pod",
            found
            | {"metadata": found["metadata"] | ({"deletionTimestamp": "now"} if deleting else {})},
            2.0,
        )

    for ended_first in (True, False):
        cache = primed(pod(0))
        told(2, ended=ended_first, deleting=not ended_first)
        told(3, ended=True, deleting=True)
        told(4, ended=True, deleting=True)
        assert cache.pods.workers_of(OWNER)[0].succeeded is ended_first


def test_pod_dead_before_the_operator_started_is_marked_for_good() -> None:
    cache = primed(pod(0, phase="Failed"))
    cache.apply("Pod", pod(1, phase="Failed"), 2.0)
    cache.apply("Pod", pod(0, version=9, phase="Failed"), 2.0)
    assert [view.ended_before_takeover for view in cache.pods.workers_of(OWNER)] == [True, False]


def store() -> dict[str, Any]:
    found = store_pod(a_job(rendezvous={"backend": "c10d"}), "x7k2p", 4)
    found["metadata"] |= {"uid": "uid-s", "resourceVersion": "1"}
    running = [{"name": "pytorch", "state": {"running": {}}}]
    return {**found, "status": {"phase": "Running", "containerStatuses": running}}


def test_stores_of_stock_rendezvous_are_no_workers() -> None:
    cache = primed(pod(0), store())
    assert [view.name for view in cache.pods.workers_of(OWNER)] == ["lm-worker-0-x7k2p"]
    [view] = cache.pods.stores_of(OWNER)
    assert (view.name, view.role, view.rendezvous) == ("lm-store-x7k2p", "store", 4)
    assert cache.worker("default", "lm-store-x7k2p", "uid-s") is None, (
        "its token, had it one, would speak for no worker"
    )


def test_workers_that_run_are_counted() -> None:
    states: list[dict[str, Any]] = [
        {"running": {}},
        {"running": {}},
        {"waiting": {}},
        {"terminated": {"exitCode": 0}},
    ]
    pods = [pod(index) for index in range(4)]
    for found, state in zip(pods, states, strict=True):
        found["status"]["containerStatuses"] = [{"name": "pytorch", "state": state}]
    assert primed(*pods, store()).running_workers == 2


def test_pod_of_another_namespace_is_nobodys_worker() -> None:
    cache = primed(pod(0))
    forged = in_namespace(pod(0, uid="forged"), "elsewhere")
    cache.apply("Pod", forged, 2.0)
    assert cache.worker("elsewhere", forged["metadata"]["name"], "forged") is None
    assert [view.uid for view in cache.pods.workers_of(OWNER)] == [pod(0)["metadata"]["uid"]]


def test_pod_that_cannot_be_made_is_stuck_since_that_began() -> None:
    def waiting(reason: str, version: int) -> dict[str, Any]:
        found = pod(0, version=version, phase="Pending")
        found["status"]["containerStatuses"] = [
            {"name": "pytorch", "state": {"waiting": {"reason": reason}}}
        ]
        return found

    cache = primed(pod(0, version=1, phase="Pending"))
    for version, (reason, now) in enumerate(
        [("ErrImagePull", 400.0), ("ImagePullBackOff", 410.0)], start=2
    ):
        cache.apply("Pod", waiting(reason, version), now)
    assert cache.pods.workers_of(OWNER)[0].stuck_since == 400.0
    cache.apply("Pod", waiting("ContainerCreating", 8), 420.0)
    cache.apply("Pod", waiting("ErrImagePull", 9), 430.0)
    assert cache.pods.workers_of(OWNER)[0].stuck_since == 430.0


def test_dead_of_before_are_no_news_to_an_operator_that_begins_to_lead() -> None:
    cache = primed(pod(0), pod(1))
    cache.apply("Pod", pod(1, version=9, phase="Failed"), 2.0)
    cache.pods.mark_ended_before_takeover()
    assert [view.ended_before_takeover for view in cache.pods.workers_of(OWNER)] == [False, True]


def test_what_was_deleted_while_a_list_was_on_its_way_does_not_come_back() -> None:
    cache = primed(pod(0), pod(1))
    listed = [pod(0), pod(1)]  # the listing began at 5.0
    assert cache.remove("Pod", identify(pod(0)), 6.0) == {KEY}
    cache.remove(names.KIND, identify(a_manifest()), 6.0)
    cache.replace_all([a_manifest()], listed, [node("node-0")], 5.0)
    assert cache.job(KEY) is None
    cache.apply(names.KIND, job(uid="uid-lm-again"), 7.0)
    assert not cache.has_job(KEY, "uid-lm")
    assert cache.worker("default", "lm-worker-0-x7k2p", "uid-0") is None


def test_deletion_is_remembered_although_the_pod_was_not_known_yet() -> None:
    cache = Cache()
    assert cache.remove("Pod", identify(pod(0)), 6.0) == set()
    cache.replace_all([a_manifest()], [pod(0), pod(1)], [node("node-0")], 5.0)
    assert [view.index for view in cache.pods.workers_of(OWNER)] == [1]


def test_late_answers_and_late_events_bring_nothing_back() -> None:
    cache = primed(pod(0))
    cache.remove("Pod", identify(pod(0, version=7)), 6.0)
    assert cache.apply("Pod", pod(0, version=5), 6.1) == set(), "the answer to its creation"
    assert cache.apply("Pod", pod(0, version=9), 6.1) == set(), "a watch that lags behind"
    cache.remove(names.KIND, identify(a_manifest()), 6.0)
    assert cache.apply(names.KIND, job(resourceVersion="9"), 6.1) == set(), (
        "the answer to a status write"
    )
    assert (cache.pods.workers_of(OWNER), cache.job(KEY)) == ((), None)


def test_ghosts_that_a_list_has_removed_do_not_come_back_either() -> None:
    cache = primed(pod(0))
    cache.replace_all([a_manifest()], [], [node("node-0")], 5.0)
    assert cache.apply("Pod", pod(0, version=9), 5.5) == set()


def test_job_of_the_same_name_made_anew_is_not_replaced_by_the_one_before() -> None:
    cache = primed()
    again, before = job(uid="uid-again", resourceVersion="8"), job(resourceVersion="7")
    assert cache.apply(names.KIND, again, 2.0) == {KEY}, "its predecessor's deletion was never told"
    assert cache.apply(names.KIND, before, 3.0) == set()
    cache.replace_all([before], [], [], 1.5)
    assert cache.has_job(KEY, "uid-again")


def test_list_is_right_about_what_was_known_before_it_began_even_if_etcd_was_restored() -> None:
    cache = primed(pod(0, version=500, phase="Running"), pod(1, version=501))
    cache.observe_change("Pod", "MODIFIED", pod(0, version=500), 2.0)
    cache.remove("Pod", identify(pod(2, version=502)), 2.0)  # deleted after the backup was made
    restored = {**job(), "status": {"round": 3}}
    cache.apply(names.KIND, {**job(resourceVersion="510"), "status": {"round": 3}}, 2.0)
    cache.apply("Pod", pod(3, version=503), 6.0)  # while the list is on its way
    touched = cache.replace_all(
        [restored], [pod(0, version=90, phase="Failed"), pod(2, version=91)], [node("node-0")], 5.0
    )
    assert touched == {KEY}
    assert [(view.index, view.phase) for view in cache.pods.workers_of(OWNER)] == [
        (0, "Failed"),
        (2, "Running"),
        (3, "Running"),
    ]
    assert cache.apply("Pod", pod(0, version=95, phase="Running"), 7.0) == {KEY}, (
        "news are news again"
    )
    silent = cache.watch_lag.silent_since()
    assert (silent["pods"], silent["jobs"]) == (5.0, 5.0), (
        "a watch that goes on at the old version is found out"
    )


def test_list_is_right_about_nodes_too() -> None:
    cache = primed(pod(0))
    cache.apply("Node", node("node-0", version=500, ready="False"), 2.0)
    cache.replace_all([a_manifest()], [pod(0)], [node("node-0", version=400)], 1.5)
    assert not cache.nodes["node-0"].ready, "the watch was quicker than the list"
    restored = node("node-0", version=90)
    assert cache.replace_all([a_manifest()], [pod(0)], [restored], 5.0) == {KEY}
    assert cache.nodes["node-0"].ready
    assert cache.apply("Node", node("node-0", version=91, ready="False"), 6.0) == {KEY}
    cache.remove("Node", identify(node("node-0", version=95)), 7.0)
    cache.replace_all([a_manifest()], [pod(0)], [restored], 6.5)
    assert cache.nodes["node-0"].removed, "it was deleted while the list was on its way"
    assert cache.replace_all([a_manifest()], [pod(0)], [restored], 8.0) == {KEY}
    assert cache.nodes["node-0"].ready


def test_address_is_known_while_a_pod_of_a_job_has_it() -> None:
    cache = primed()
    cache.apply("Pod", {**pod(0), "status": {"phase": "Running", "podIP": "10.1.2.3"}}, 2.0)
    forged = {**pod(1, uid="forged"), "status": {"phase": "Running", "podIP": "10.9.9.9"}}
    cache.apply("Pod", in_namespace(forged, "elsewhere"), 2.0)
    assert [cache.has_pod_at(address) for address in ("10.1.2.3", "10.9.9.9", "")] == [
        True,
        False,
        False,
    ]
    cache.remove("Pod", identify(pod(0)), 3.0)
    assert not cache.has_pod_at("10.1.2.3")


def test_what_a_list_could_not_have_stays_but_is_not_waited_for() -> None:
    cache = Cache(watch_lag=WatchLag(by_namespace=True))
    cache.replace_all(
        [job(namespace="refused")], [in_namespace(pod(0), "refused")], [node("node-0")], 1.0
    )
    assert cache.watch_lag.silent_since().keys() == {"jobs", "pods", "nodes"}
    assert cache.replace_all([], [], [node("node-0")], 5.0, unavailable={"refused"}) == set()
    key = JobKey("refused", "lm")
    assert (cache.keys, cache.unavailable) == ([key], {"refused"})
    assert len(cache.pods.workers_of((key, "uid-lm"))) == 1
    assert cache.watch_lag.silent_since().keys() == {"nodes"}
    assert cache.replace_all([], [], [node("node-0")], 9.0) == {key}
    assert (cache.keys, cache.unavailable) == ([], set())
