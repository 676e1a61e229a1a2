from typing import Any

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.workload_views import job_of_workload, view_workload
from elastic_pytorch_operator.manifests.workload import workload
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.model.workload import Admission
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import OWNER, a_manifest, a_queued_job

STATUS = {
    "admission": {
        "clusterQueue": "shared",
        "podSetAssignments": [
            {
                "name": "main",
                "count": 2,
                "flavors": {"cpu": "f", "memory": "f"},
                "topologyAssignment": {"levels": []},
            }
        ],
    },
    "admissionChecks": [
        {"name": "c", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}, {"name": "other"}]}
    ],
    "conditions": [
        {"type": "QuotaReserved", "status": "True"},
        {"type": "Admitted", "status": "True"},
    ],
}


def a_reported(version: int = 1, **changes: Any) -> dict[str, Any]:
    made = workload(a_queued_job(), CreateWorkload(1, 2), {"priority": 0}, {})
    made["metadata"] |= {"uid": "w", "resourceVersion": str(version)}
    return {**made, **changes}


def test_view_has_what_kueue_has_assigned() -> None:
    view = view_workload(
        a_reported(status={**STATUS, "admission": {**STATUS["admission"]}}), None, 5.0
    )  # type: ignore[dict-item]
    assert (view.number, view.count, view.queue, view.active, view.evicted_since) == (
        1,
        2,
        "team",
        True,
        None,
    )
    assert view.granted == 2
    topology = bool(STATUS["admission"]["podSetAssignments"][0]["topologyAssignment"])  # type: ignore[call-overload]
    assert view.admission == Admission(
        "shared", 2, ("f",), topology, ({"name": "main", "labels": {"a": "b"}},)
    )


def test_view_tells_what_it_was_made_for() -> None:
    assert view_workload(a_reported(), None, 5.0).quota_for == a_queued_job().quota_for(extra=False)
    job = a_queued_job(scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spot"}}})
    made = workload(job, CreateWorkload(1, 1), {"priority": 0}, {})
    made["metadata"]["uid"] = "w"
    assert view_workload(made, None, 5.0).quota_for == job.quota_for(extra=True) != ""


def test_eviction_is_timed_from_when_it_was_first_seen() -> None:
    evicted = a_reported(
        status={"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted"}]}
    )
    first = view_workload(evicted, None, 5.0)
    assert first.evicted_since == 5.0
    assert view_workload(evicted, first, 9.0).evicted_since == 5.0


def test_only_workloads_of_our_jobs_are_known() -> None:
    assert job_of_workload(a_reported()) == (JobKey("default", "lm"), "uid-lm")
    other = a_reported()
    del other["metadata"]["labels"]["elasticpytorch.dev/workload-number"]
    assert job_of_workload(other) is None


def test_cache_has_the_workloads_of_a_job_and_tells_whom_a_change_concerns() -> None:
    cache, key = Cache(), JobKey("default", "lm")
    cache.apply(names.KIND, a_manifest(), 1.0)
    assert cache.observe_change(kueue.WORKLOAD, "ADDED", a_reported(1), 2.0) == {key}
    assert cache.observe_change(kueue.WORKLOAD, "MODIFIED", a_reported(2), 3.0) == set(), (
        "nothing that a plan reads"
    )
    assert (
        cache.observe_change(kueue.WORKLOAD, "MODIFIED", a_reported(1, status=STATUS), 3.0) == set()
    ), "older"
    (view,) = cache.workloads_of(OWNER)
    assert (view.version, view.granted) == ("2", 0)
    assert cache.observe_change(kueue.WORKLOAD, "MODIFIED", a_reported(3, status=STATUS), 4.0) == {
        key
    }
    assert cache.observe_change(kueue.WORKLOAD, "DELETED", a_reported(3), 5.0) == {key}
    assert cache.workloads_of(OWNER) == ()
    assert cache.observe_change(kueue.WORKLOAD, "MODIFIED", a_reported(4), 6.0) == set(), (
        "a late report of what is gone"
    )


def test_list_corrects_what_the_watch_has_missed() -> None:
    cache = Cache()
    cache.apply(kueue.WORKLOAD, a_reported(1), 1.0)
    assert cache.replace_all([a_manifest()], [], [], 2.0, [a_reported(5, status=STATUS)]) >= {
        JobKey("default", "lm")
    }
    assert [view.granted for view in cache.workloads_of(OWNER)] == [2]
    assert cache.watch_lag.silent_since().keys() >= {"workloads"}
    cache.replace_all([a_manifest()], [], [], 9.0, [])
    assert cache.workloads_of(OWNER) == ()
