"""What jobs, workers and agents there are, as metrics of a scrape."""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.job_gauges import pending_since
from elastic_pytorch_operator.monitoring.metrics import KEEP_SECONDS, Metrics
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.runtime.gauges import read_gauges
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_manifest, a_round
from tests.operator.monitoring.test_metrics import NOON, condition, read


def gauges_of(
    cache: Cache, queue: WorkQueue[JobKey] | None = None, *, leading: bool = True
) -> GaugeValues:
    return read_gauges(
        cache, AgentRegistry(), queue or WorkQueue(), leading=leading, now=0.0, time=NOON
    )


def test_jobs_and_workers_are_told_by_the_leader_alone() -> None:
    cache, metrics = Cache(), Metrics()
    listed, others = [{"state": "Running"}, {"state": "Starting"}], {"Running": "128-199"}
    running = a_manifest() | {
        "status": {"state": "Running", "workers": listed, "unlistedWorkers": others}
    }
    ended = {
        "state": "Complete",
        "conditions": [{"type": "Complete", "status": "True"}],
        "workers": [{"state": "Succeeded"}],
    }
    other = a_manifest("other") | {"status": ended}
    cache.replace_all([running, other, a_manifest("new")], [], [], 0.0)
    queue: WorkQueue[JobKey] = WorkQueue()
    queue.add(JobKey("default", "new"))
    found = read(metrics, gauges_of(cache, queue))
    states = {
        name: value for name, value in found.items() if name.startswith("jobs{namespace=default")
    }
    told = {name.rpartition("=")[2][:-1]: value for name, value in states.items() if value}
    assert told == {"Pending": 1, "Running": 1, "Complete": 1}
    assert len(states) == 7, "also those that no job is in"
    assert found["workers{namespace=default,state=Starting}"] == 1
    assert found["workers{namespace=default,state=Running}"] == 1 + 72, (
        "also those that are not listed"
    )
    assert found["workers{namespace=default,state=Succeeded}"] == 0, (
        "of jobs that have ended none is counted"
    )
    assert found["leader_election_master_status{name=elastic-pytorch-operator}"] == 1
    assert found["workqueue_depth{name=elasticpytorchjob}"] == 1
    standby = read(metrics, gauges_of(cache, queue, leading=False))
    assert not [name for name in standby if name.startswith("jobs{")]
    assert standby["leader_election_master_status{name=elastic-pytorch-operator}"] == 0


def test_agents_are_counted_that_still_speak() -> None:
    registry, metrics = AgentRegistry(), Metrics()
    for worker, heard_at in (("ended", 100.0), ("alive", 195.0)):
        registry.note_heartbeat(
            "uid-lm",
            parse_heartbeat(
                worker, {"incarnation": worker, "state": "ready", "round": 0}, heard_at
            ),
        )
    found = read(
        metrics, read_gauges(Cache(), registry, WorkQueue(), leading=True, now=200.0, time=NOON)
    )
    assert found["agents_connected{}"] == 1


def test_a_cluster_needs_no_more_series_for_more_jobs() -> None:
    def count(jobs: int) -> int:
        cache, metrics = Cache(), Metrics()
        manifests = [a_manifest(f"job-{n}") | {"status": {"state": "Running"}} for n in range(jobs)]
        cache.replace_all(manifests, [], FakeCluster()._list("Node"), 0.0)
        return len(read(metrics, gauges_of(cache)))

    assert count(1) == count(100)


def test_each_namespace_has_series_while_it_has_jobs_and_some_minutes_longer() -> None:
    now = [0.0]
    cache, metrics = Cache(), Metrics(clock=lambda: now[0])
    jobs = [
        a_manifest(f"lm-{name}", namespace=name) | {"status": {"state": "Running"}}
        for name in ("a", "b")
    ]
    cache.replace_all(jobs, [], [], 0.0)
    found = read(metrics, gauges_of(cache))
    assert found["jobs{namespace=a,state=Running}"] == 1
    assert found["jobs{namespace=b,state=Running}"] == 1
    metrics.decided(
        "b", Memory(), Plan(Memory(), round=replace(a_round(0, 1), reason="FirstRound"))
    )
    cache.replace_all(jobs[:1], [], [], 1.0)
    now[0] = KEEP_SECONDS
    found = read(metrics, gauges_of(cache))
    assert not [name for name in found if name.startswith("jobs{namespace=b")]
    assert found["rounds_declared_total{namespace=b,reason=FirstRound}"] == 1, (
        "a last scrape may need it"
    )
    now[0] = KEEP_SECONDS + 1
    found = read(metrics, gauges_of(cache))
    assert not [name for name in found if "namespace=b" in name]
    assert found["steps_lost_total{namespace=a}"] == 0


@pytest.mark.parametrize(
    "status",
    [
        {"state": "Running", "workers": ["no worker"]},
        {"state": "Running", "unlistedWorkers": {"Running": 7}},
        {"state": "Running", "stragglers": 3},
        {"state": "Running", "worldSize": 1, "progress": {"stepsPerSecond": "fast"}},
        {"state": ["Running"]},
    ],
    ids=str,
)
def test_status_that_cannot_be_read_costs_nobody_else_the_metrics(status: Any) -> None:
    cache = Cache()
    jobs = [a_manifest("bad", namespace="a") | {"status": status}, a_manifest(namespace="b")]
    cache.replace_all(jobs, [], [], 0.0)
    assert read(Metrics(), gauges_of(cache))["jobs{namespace=b,state=Pending}"] == 1


@pytest.mark.parametrize(
    ("created", "conditions", "since"),
    [
        (NOON, [], NOON),
        (NOON, [condition("Running", "False", "2026-01-01T13:00:00Z")], "2026-01-01T13:00:00Z"),
        (NOON, [condition("Running", "True", "2026-01-01T13:00:00Z")], NOON),
        (
            NOON,
            [
                condition("Running", "False", "2026-01-01T13:00:00Z"),
                condition("Suspended", "False", "2026-01-02T00:00:00Z"),
            ],
            "2026-01-02T00:00:00Z",
        ),
        ("", [], ""),
    ],
)
def test_job_waits_since_it_was_created_stopped_or_resumed(
    created: str, conditions: list[dict[str, str]], since: str
) -> None:
    told = pending_since(
        {"metadata": {"creationTimestamp": created}, "status": {"conditions": conditions}}
    )
    assert told == since


def waiting(name: str, created: str, reason: str) -> dict[str, Any]:
    manifest = a_manifest(name)
    status = {"conditions": [condition("Running", "False", created) | {"reason": reason}]}
    return manifest | {
        "metadata": {**manifest["metadata"], "creationTimestamp": created},
        "status": status,
    }


def test_waits_are_told_by_what_jobs_wait_for() -> None:
    cache = Cache()
    running = a_manifest("old") | {"status": {"state": "Running"}}
    jobs = [
        waiting("a", "2026-01-01T11:00:00Z", "WaitingForQuota"),
        waiting("b", "2026-01-01T11:59:00Z", "WaitingForQuota"),
        waiting("c", "2026-01-01T11:58:00Z", "BackingOff"),
    ]
    cache.replace_all([*jobs, running], [], [], 0.0)
    found = read(Metrics(), gauges_of(cache))
    assert {
        name: value
        for name, value in found.items()
        if "jobs_waiting" in name or "longest_pending" in name
    } == {
        "jobs_waiting{namespace=default,reason=WaitingForQuota}": 2,
        "longest_pending_seconds{namespace=default,reason=WaitingForQuota}": 3600,
        "jobs_waiting{namespace=default,reason=BackingOff}": 1,
        "longest_pending_seconds{namespace=default,reason=BackingOff}": 120,
    }
    assert not [
        name for name in read(Metrics(), gauges_of(cache, leading=False)) if "jobs_waiting" in name
    ]


def test_slow_ranks_of_jobs_that_train_are_counted() -> None:
    cache, slow = Cache(), {"state": "Running", "stragglers": [{"rank": 1}, {"rank": 5}]}
    ended = {**slow, "state": "Complete", "conditions": [{"type": "Complete", "status": "True"}]}
    statuses = {"a": slow, "b": slow, "c": {"state": "Running"}, "d": ended}
    cache.replace_all(
        [a_manifest(name) | {"status": status} for name, status in statuses.items()], [], [], 0.0
    )
    assert read(Metrics(), gauges_of(cache))["stragglers{namespace=default}"] == 4
    standby = read(Metrics(), gauges_of(cache, leading=False))
    assert not [name for name in standby if name.startswith("stragglers")]


def test_each_job_has_series_on_request_only_and_they_go_with_it() -> None:
    status = {
        "state": "Running",
        "readyReplicas": 2,
        "worldSize": 2,
        "progress": {"step": 501, "stepsPerSecond": "2.5"},
    }
    status |= {
        "conditions": [
            condition("Degraded", "True", "2026-01-01T11:59:00Z") | {"reason": "WorkersMissing"}
        ]
    }
    cache, metrics = Cache(), Metrics(per_job=True)
    cache.replace_all([a_manifest() | {"status": status}, a_manifest("new")], [], [], 0.0)
    found = read(metrics, gauges_of(cache))
    job = "{job_name=lm,namespace=default"
    assert {name: value for name, value in found.items() if "job_name=lm" in name} == {
        f"job_wanted_workers{job}}}": 3,
        f"job_ready_workers{job}}}": 2,
        f"job_world_size{job}}}": 2,
        f"job_step{job}}}": 501,
        f"job_step_seconds{job}}}": 0.4,
        f"job_impaired_seconds{job},reason=WorkersMissing}}": 60,
    }
    assert "job_step{job_name=new,namespace=default}" not in found, "it has reported none"
    waiting = Cache()
    waiting.replace_all([a_manifest() | {"status": {**status, "worldSize": 0}}], [], [], 0.0)
    assert "job_step_seconds{job_name=lm,namespace=default}" not in read(
        metrics, gauges_of(waiting)
    )
    assert not [
        name for name in read(metrics, gauges_of(cache, leading=False)) if "job_name" in name
    ]
    assert not [name for name in read(Metrics(), gauges_of(cache)) if "job_name" in name]
    cache.replace_all([], [], [], 2.0)
    assert not [name for name in read(metrics, gauges_of(cache)) if "job_name" in name]


def test_what_is_left_out_is_told_while_it_is_so() -> None:
    cache, metrics = Cache(watch_lag=WatchLag(by_namespace=True)), Metrics()
    unreadable = {
        "metadata": {"uid": "u", "name": "gpu-0", "resourceVersion": "1"},
        "spec": {"taints": 7},
    }
    cache.replace_all([], [], [unreadable], 1.0, unavailable={"refused"})
    cache.watch_lag.fails("pods", "failing", 0.0)
    found = read(metrics, gauges_of(cache))
    assert found["unreadable_objects{kind=Node}"] == 1
    assert found["unreadable_objects{kind=Pod}"] == 0
    left_out = [name for name in found if name.startswith("namespace_unavailable")]
    assert left_out == [
        f"namespace_unavailable{{namespace={name}}}" for name in ("failing", "refused")
    ]
    cache.replace_all([], [], [], 2.0)
    cache.watch_lag.observe(
        "pods", {"metadata": {"namespace": "failing", "uid": "p"}}, 2.0, gone=False
    )
    found = read(metrics, gauges_of(cache))
    assert found["unreadable_objects{kind=Node}"] == 0
    assert not [name for name in found if name.startswith("namespace_unavailable")]
