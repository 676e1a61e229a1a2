import copy
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.changes import (
    Identity,
    identify,
    plans_alike,
    pods_alike,
    version_of,
)
from elastic_pytorch_operator.spec.platform.job_template import TemplateUnread
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import KEY, a_job, a_manifest, a_pod, a_worker_pod
from tests.situations import situations


def test_object_is_known_by_its_names_its_uid_and_its_version() -> None:
    metadata = {"namespace": "team", "name": "lm", "uid": "u", "resourceVersion": "12345678901"}
    assert identify({"metadata": metadata}) == Identity("team", "lm", "u", 12345678901)


@pytest.mark.parametrize(
    "manifest",
    [None, 7, [], {}, {"metadata": []}, {"metadata": {"uid": 7, "name": None, "namespace": {}}}],
)
def test_what_is_missing_or_of_another_type_is_empty(manifest: object) -> None:
    assert identify(manifest) == Identity("", "", "", 0)


@given(
    version=st.text()
    | st.integers()
    | st.none()
    | st.sampled_from(["²", "9" * 5_000, "٣", "-1", "1.5"])
)
def test_version_that_is_no_number_is_the_oldest(version: object) -> None:
    digits = isinstance(version, str) and version.isascii() and version.isdigit()
    assert version_of({"resourceVersion": version}) == (
        int(str(version)) if digits and len(str(version)) <= 20 else 0
    )


READY, DRAINED = ("Ready", "True"), ("DisruptionTarget", "True")


@situations(
    "change, read, alike",
    {
        "nothing": ({}, (), True),
        "a place": ({"node": "node-1"}, (), False),
        "a condition": ({"conditions": frozenset({READY})}, (), True),
        "a condition that no rule names": ({"conditions": frozenset({DRAINED})}, (READY,), True),
        "a condition that a rule names": ({"conditions": frozenset({DRAINED})}, (DRAINED,), False),
        "a condition, and its deletion": (
            {"conditions": frozenset({READY}), "deleting": True},
            (),
            False,
        ),
    },
)
def test_pod(change: dict[str, Any], read: tuple[tuple[str, str], ...], alike: bool) -> None:
    assert pods_alike(a_pod(0), replace(a_pod(0), **change), set(read)) is alike


def test_job() -> None:
    job = a_job()
    assert plans_alike(job, replace(job, version="9"))
    assert plans_alike(
        job,
        replace(
            job,
            version="9",
            status={"progress": {"step": 8}, "goodput": {"seconds": {"Training": 9}}},
        ),
    )
    assert not plans_alike(job, replace(job, version="9", status={"round": 1}))
    assert not plans_alike(job, replace(job, version="9", wanted=2))
    assert not plans_alike(job, TemplateUnread("gpu", None))
    assert not plans_alike(TemplateUnread("gpu", None), TemplateUnread("gpu", None))


def conditions(**statuses: str) -> list[dict[str, str]]:
    return [{"type": type_, "status": status} for type_, status in statuses.items()]


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


AGENT, WAITING = "elastic-pytorch-agent", {"reason": "PodInitializing"}
SCHEDULED = {"PodScheduled": "True"}
STARTING = {
    **SCHEDULED,
    "PodReadyToStartContainers": "True",
    "Initialized": "False",
    "Ready": "False",
    "ContainersReady": "False",
}
# What a scheduler, a CNI plugin and a kubelet of 1.33 write to a pod with an init container, in
# order; and whether a plan reads it.
LIFE: list[tuple[str, dict[str, Any], bool]] = [
    (
        "the scheduler gives it a node",
        {"spec": {"nodeName": "node-0"}, "status": {"conditions": conditions(**SCHEDULED)}},
        True,
    ),
    (
        "a plugin annotates it",
        {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"}}},
        False,
    ),
    (
        "the kubelet has taken it",
        {
            "status": {
                "conditions": conditions(**{**STARTING, "PodReadyToStartContainers": "False"}),
                "initContainerStatuses": [container(AGENT, waiting=WAITING)],
                "containerStatuses": [container("pytorch", waiting=WAITING)],
            }
        },
        False,
    ),
    (
        "its network is there, and its init container runs",
        {
            "status": {
                "podIP": "10.0.0.7",
                "conditions": conditions(**STARTING),
                "initContainerStatuses": [container(AGENT, running={})],
            }
        },
        True,
    ),
    (
        "its init container has ended",
        {
            "status": {
                "conditions": conditions(**{**STARTING, "Initialized": "True"}),
                "initContainerStatuses": [
                    container(AGENT, terminated={"exitCode": 0, "reason": "Completed"})
                ],
            }
        },
        False,
    ),
    (
        "its container runs",
        {
            "status": {
                "phase": "Running",
                "conditions": conditions(**dict.fromkeys(STARTING, "True")),
                "containerStatuses": [container("pytorch", running={})],
            }
        },
        True,
    ),
    (
        "its managed fields are rewritten",
        {"metadata": {"managedFields": [{"manager": "kubelet"}]}},
        False,
    ),
    ("it is being deleted", {"metadata": {"deletionTimestamp": "now"}}, True),
    (
        "it is no longer ready",
        {"status": {"conditions": conditions(**{**STARTING, "Ready": "False"})}},
        False,
    ),
    (
        "its container has ended",
        {
            "status": {
                "phase": "Failed",
                "containerStatuses": [container("pytorch", terminated={"exitCode": 143})],
            }
        },
        True,
    ),
]


def test_life_of_a_pod_asks_for_the_plans_that_read_it_and_for_no_others() -> None:
    cache = Cache()
    cache.replace_all([a_manifest()], [], [], 1.0)
    found = copy.deepcopy(a_worker_pod(a_job(), 0))
    found["metadata"] |= {"uid": "uid-0", "resourceVersion": "2"}
    found["status"] = {"phase": "Pending"}
    cache.note_written("Pod", found, 1.5)
    assert cache.observe_change("Pod", "ADDED", found, 1.6) == set(), (
        "the watch reports what the operator has written"
    )
    plans = 0
    for version, (what, change, planned) in enumerate(LIFE, start=3):
        found = {
            name: {**found[name], **change.get(name, {})} for name in ("metadata", "spec", "status")
        }
        found["metadata"]["resourceVersion"] = str(version)
        keys = cache.observe_change("Pod", "MODIFIED", copy.deepcopy(found), 2.0 + version)
        assert keys == ({KEY} if planned else set()), what
        plans += len(keys)
    assert cache.observe_change("Pod", "DELETED", found, 30.0) == {KEY}
    assert plans == 5


def test_status_that_the_operator_has_written_asks_for_no_plan_when_the_watch_reports_it() -> None:
    cache = Cache()
    cache.replace_all([a_manifest()], [], [], 1.0)
    written = {
        **a_manifest(),
        "status": {"round": 1},
        "metadata": {**a_manifest()["metadata"], "resourceVersion": "5"},
    }
    cache.note_written(names.KIND, written, 2.0)
    assert cache.observe_change("ElasticPyTorchJob", "MODIFIED", written, 2.1) == set()
    labelled = {
        **written,
        "metadata": {**written["metadata"], "resourceVersion": "6", "labels": {"team": "a"}},
    }
    assert cache.observe_change("ElasticPyTorchJob", "MODIFIED", labelled, 2.2) == set()
    found = cache.job(KEY)
    assert getattr(found, "version", "") == "6", "the next write names the newest version"


def test_list_that_shows_a_change_which_no_plan_reads_still_awaits_it_on_the_watch() -> None:
    cache = Cache()
    found = copy.deepcopy(a_worker_pod(a_job(), 0))
    found["metadata"] |= {"uid": "uid-0", "resourceVersion": "2"}
    cache.replace_all([a_manifest()], [found], [], 1.0)
    cache.observe_change("Pod", None, found, 1.5)
    cache.observe_change("ElasticPyTorchJob", None, a_manifest(), 1.5)
    newer = {**found, "metadata": {**found["metadata"], "resourceVersion": "9"}}
    assert cache.replace_all([a_manifest()], [newer], [], 5.0) == set()
    assert cache.watch_lag.silent_since() == {"pods": 5.0}
