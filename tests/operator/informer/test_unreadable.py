import copy
import logging
from typing import Any

import pytest
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.informer.cache import WATCHES, Cache
from elastic_pytorch_operator.informer.kopf_watches import RESOURCES
from elastic_pytorch_operator.manifests.workload import workload
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.model.reduced_objects import reducer
from elastic_pytorch_operator.spec.job import Job
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_examples import examples
from tests.operator.any_jobs import places
from tests.operator.builders import KEY, OWNER, a_job, a_manifest, a_queued_job, a_worker_pod

Path = tuple[str | int, ...]


def a_reported(kind: str, *, namespace: str = "default", name: str = "lm") -> dict[str, Any]:
    """An object as an API server has it, of a job of that name."""
    found: dict[str, Any]
    if kind == names.KIND:
        found = a_manifest(
            name, sharedVolumeClaims=[], failurePolicy={"rules": []}, rendezvous={}, resizePolicy={}
        )
        found["status"] = {
            "round": 1,
            "conditions": [{"type": "Running", "status": "True"}],
            "workers": [],
        }
    elif kind == "Pod":
        found = a_worker_pod(a_job(name=name), 0)
        found["spec"]["nodeName"] = "node-0"
        state = {"name": "pytorch", "state": {"running": {}}}
        found["status"] = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [state],
            "initContainerStatuses": [{"name": "agent", "state": {"terminated": {"exitCode": 0}}}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        found["metadata"]["annotations"] |= dict.fromkeys(
            (names.ANNOTATION_GROUP_RESTARTS, names.ANNOTATION_AVOIDS), "1"
        )
    elif kind == "Node":
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        ready = {"type": "Ready", "status": "True"}
        found = {
            "metadata": {
                "name": f"node-of-{name}",
                "labels": {"cloud.google.com/scheduled-maintenance-time": "1700000000"},
            },
            "spec": {"taints": [taint]},
            "status": {"conditions": [ready], "allocatable": {"cpu": "4"}},
        }
    else:
        found = workload(a_queued_job(name=name), CreateWorkload(1, 2), {"priority": 0}, {})
        found["status"] = {
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "f"}}],
            },
            "admissionChecks": [{"name": "c", "podSetUpdates": [{"name": "main"}]}],
            "conditions": [
                {"type": "QuotaReserved", "status": "True"},
                {"type": "Evicted", "status": "True"},
            ],
        }
    found = copy.deepcopy(found)
    found["metadata"] |= {
        "uid": f"uid-{name}" if kind == names.KIND else f"{kind}-{name}",
        "resourceVersion": "5",
    }
    if kind != "Node":
        found["metadata"]["namespace"] = namespace
    for owner in found["metadata"].get("ownerReferences") or ():
        owner["uid"] = f"uid-{name}"
    return found


def altered(found: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """An object with another value in one place, or none there."""
    changed = copy.deepcopy(found)
    part: Any = changed
    for name in path[:-1]:
        part = part[name]
    if value is MISSING:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return changed


MISSING = object()
# What annotations, labels and quantities of tenants were, or might be.
NASTY: list[Any] = [
    "²", "٣", "9" * 5_000, "9" * 310, "1e999", "-1", "+1", " 1", "", "\ud800", "\0", "NaN", "inf",
    "1/0", None, True, -1, 2**70, 1e308, float("inf"), float("nan"), [], [None], [[]], {},
    {"name": []}, {"a": None}, MISSING,
]  # fmt: skip
KINDS = tuple(WATCHES)
GOOD = {kind: a_reported(kind) for kind in KINDS}
PLACES = [
    (kind, path)
    for kind in KINDS
    for path in places(a_reported(kind, namespace="tenant", name="bad"))
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=8), part, max_size=3)
    ),
    max_leaves=8,
)


def as_listed(kind: str, found: Any) -> Any:
    """An object as a list has it."""
    return reducer(RESOURCES[kind].plural)(found)


def check_that_others_are_known(kind: str, bad: Any) -> None:
    """It is listed beside good ones of all kinds, watched, then gone; those stay known."""
    cache = Cache()

    def listed(*, bad_too: bool) -> list[list[dict[str, Any]]]:
        return [
            [bad, GOOD[other]] if other == kind and bad_too else [GOOD[other]] for other in KINDS
        ]

    def are_known() -> None:
        assert isinstance(cache.job(KEY), Job)
        assert len(cache.pods.workers_of(OWNER)) == 1
        assert len(cache.workloads_of(OWNER)) == 1
        assert "node-of-lm" in cache.nodes
        assert cache.running_workers >= 1
        assert cache.watch_lag.silent_since() is not None

    for now, bad_too in ((1.0, True), (10.0, False), (20.0, True)):
        jobs, pods, nodes, workloads = listed(bad_too=bad_too)
        cache.replace_all(jobs, pods, nodes, now, workloads)
        are_known()
        for change in (None, "MODIFIED", "DELETED"):
            cache.observe_change(kind, change, bad, now + 1.0)
        are_known()
    jobs, pods, nodes, workloads = listed(bad_too=False)
    cache.replace_all(jobs, pods, nodes, 40.0, workloads)
    are_known()
    assert sum(cache.unreadable.counts.values()) == 0, "it is gone"


def test_what_is_no_object_is_left_out() -> None:
    for bad in (
        None,
        7,
        "text",
        [],
        {},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"name": "bad"}},
    ):
        for kind in KINDS:
            check_that_others_are_known(kind, bad)
            check_that_others_are_known(kind, as_listed(kind, bad))


def test_values_that_are_known_to_be_nasty_hide_no_other_object() -> None:
    for number, (kind, path) in enumerate(PLACES):
        for value in NASTY[number % 4 :: 4]:
            check_that_others_are_known(
                kind, altered(a_reported(kind, namespace="tenant", name="bad"), path, value)
            )


@settings(max_examples=examples(1_000))
@given(place=st.sampled_from(PLACES), value=st.sampled_from(NASTY) | JSON)
def test_no_value_of_any_field_hides_another_object(place: tuple[str, Path], value: Any) -> None:
    kind, path = place
    bad = altered(a_reported(kind, namespace="tenant", name="bad"), path, value)
    check_that_others_are_known(kind, bad)
    check_that_others_are_known(kind, as_listed(kind, bad))


@given(
    kind=st.sampled_from(KINDS),
    annotations=st.dictionaries(st.text(), st.text()),
    labels=st.dictionaries(st.text(), st.text()),
)
def test_no_annotation_or_label_makes_an_object_unreadable(
    kind: str, annotations: dict[str, str], labels: dict[str, str]
) -> None:
    found = a_reported(kind)
    for field, texts in (("annotations", annotations), ("labels", labels)):
        known = found["metadata"].get(field) or {}
        found["metadata"][field] = {
            **known,
            **texts,
            **dict.fromkeys(known, next(iter(texts.values()), "²")),
        }
    cache = Cache()
    cache.observe_change(kind, "ADDED", found, 1.0)
    assert sum(cache.unreadable.counts.values()) == 0


def test_annotation_that_is_no_number_counts_as_none() -> None:
    pod = a_reported("Pod")
    pod["metadata"]["annotations"][names.ANNOTATION_GROUP_RESTARTS] = "²"
    cache = Cache()
    cache.replace_all([a_manifest()], [pod], [], 1.0)
    [view] = cache.pods.workers_of(OWNER)
    assert (view.group_restarts, cache.unreadable.counts) == (0, {})


def spoilt(kind: str, version: int, **labels: str) -> dict[str, Any]:
    found = a_reported(kind)
    found["metadata"] |= {
        "resourceVersion": str(version),
        "generation": "no number",
        "deletionTimestamp": None,
    }
    part = {"Pod": ("status", {"containerStatuses": 7}), "Node": ("spec", {"taints": 7})}.get(
        kind, ("spec", {"podSets": 7})
    )
    return found if kind == names.KIND else {**found, part[0]: part[1]}


@pytest.mark.parametrize("by_list", [True, False])
def test_pod_that_can_no_longer_be_read_keeps_its_place_while_it_lives(by_list: bool) -> None:
    cache = Cache()
    cache.replace_all([a_manifest()], [a_reported("Pod")], [], 1.0)
    before = cache.pods.workers_of(OWNER)
    if by_list:
        cache.replace_all([a_manifest()], [spoilt("Pod", 6)], [], 10.0)
    else:
        assert cache.observe_change("Pod", "MODIFIED", spoilt("Pod", 6), 10.0) == {KEY}, (
            "an event reports it"
        )
        assert cache.observe_change("Pod", "MODIFIED", spoilt("Pod", 6), 10.0) == set()
    assert cache.pods.workers_of(OWNER) == before
    assert cache.unreadable.counts == {"Pod": 1}
    [unreadable] = cache.unreadable.of(OWNER)
    assert (unreadable.kind, unreadable.name, unreadable.fault[:9]) == (
        "Pod",
        before[0].name,
        "TypeError",
    )
    assert (
        "pods" not in cache.watch_lag.silent_since()
        or not by_list
        or cache.watch_lag.silent_since()["pods"] == 1.0
    ), "its watch is not waited for"
    assert cache.observe_change("Pod", "DELETED", spoilt("Pod", 7), 11.0) == {KEY}
    assert (cache.pods.workers_of(OWNER), cache.unreadable.counts, cache.unreadable.of(OWNER)) == (
        (),
        {},
        (),
    )


def test_node_that_can_be_read_again_is_not_unreadable_though_it_is_no_news() -> None:
    cache, again = Cache(), a_reported("Node")
    cache.replace_all([], [], [a_reported("Node")], 1.0)
    cache.observe_change("Node", "MODIFIED", spoilt("Node", 6), 2.0)
    assert cache.unreadable.counts == {"Node": 1}
    again["metadata"]["resourceVersion"] = "7"
    assert cache.observe_change("Node", "MODIFIED", again, 3.0) == set()
    assert cache.unreadable.counts == {}


def test_pod_that_is_no_longer_a_jobs_is_not_unreadable() -> None:
    cache, stray = Cache(), a_reported("Pod")
    cache.observe_change("Pod", "ADDED", spoilt("Pod", 6), 1.0)
    stray["metadata"] |= {"resourceVersion": "7", "labels": {}}
    cache.observe_change("Pod", "MODIFIED", stray, 2.0)
    assert cache.unreadable.counts == {}


def test_pod_that_can_be_read_again_is_news() -> None:
    cache = Cache()
    cache.replace_all([a_manifest()], [a_reported("Pod")], [], 1.0)
    cache.observe_change("Pod", "MODIFIED", spoilt("Pod", 6), 2.0)
    again = a_reported("Pod")
    again["metadata"]["resourceVersion"] = "7"
    again["status"]["phase"] = "Failed"
    assert cache.observe_change("Pod", "MODIFIED", again, 3.0) == {KEY}
    assert ([view.phase for view in cache.pods.workers_of(OWNER)], cache.unreadable.counts) == (
        ["Failed"],
        {},
    )


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("Node", lambda cache: cache.nodes),
        (kueue.WORKLOAD, lambda cache: cache.workloads_of(OWNER)),
    ],
)
def test_last_version_that_could_be_read_stays(kind: str, known: Any) -> None:
    cache = Cache()
    cache.replace_all([a_manifest()], [], [a_reported("Node")], 1.0, [a_reported(kueue.WORKLOAD)])
    before = known(cache)
    bad = spoilt(kind, 6)
    listed = {"Node": [a_reported("Node")], kueue.WORKLOAD: [a_reported(kueue.WORKLOAD)]} | {
        kind: [bad]
    }
    cache.observe_change(kind, "MODIFIED", bad, 2.0)
    cache.replace_all([a_manifest()], [], listed["Node"], 10.0, listed[kueue.WORKLOAD])
    assert known(cache) == before
    assert cache.unreadable.counts == {kind: 1}


@pytest.mark.parametrize("by_list", [True, False])
def test_job_that_cannot_be_read_says_so(by_list: bool) -> None:
    cache, bad = Cache(), {**spoilt(names.KIND, 6), "status": "running"}
    if by_list:
        assert cache.replace_all([bad], [], [], 1.0) == {KEY}
    else:
        assert cache.observe_change(names.KIND, "ADDED", bad, 1.0) == {KEY}
    found = cache.job(KEY)
    assert isinstance(found, Job)
    assert found.problem.startswith("spec: the operator cannot read it: ValueError(")
    assert "no number" in found.problem
    assert cache.job_manifest(KEY)["status"] == {}, (
        "what has another type than it must have is not passed on"
    )
    good = a_manifest()
    good["metadata"]["resourceVersion"] = "7"
    assert cache.observe_change(names.KIND, "MODIFIED", good, 2.0) == {KEY}
    found = cache.job(KEY)
    assert isinstance(found, Job)
    assert (found.problem, cache.unreadable.counts) == ("", {})


def test_each_is_logged_once_with_its_name_and_its_fault(caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache()
    with caplog.at_level(logging.INFO):
        for version in (6, 7):
            cache.observe_change("Pod", "MODIFIED", spoilt("Pod", version), 2.0)
            cache.replace_all([a_manifest()], [spoilt("Pod", version)], [], 10.0)
    [told] = [vars(record) for record in caplog.records if "TypeError" in record.getMessage()]
    assert (told["kind"], told["object"], told["uid"], told["version"]) == (
        "Pod",
        "default/lm-worker-0-x7k2p",
        "Pod-lm",
        6,
    )
