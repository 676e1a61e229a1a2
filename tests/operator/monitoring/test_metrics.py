import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.job_counts import ROUND_REASONS
from elastic_pytorch_operator.monitoring.metrics import KEEP_SECONDS, Metrics
from elastic_pytorch_operator.planning import plan_rounds
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.reporting.interruption import PHASES, Interruption
from elastic_pytorch_operator.planning.rounds import next_round
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.runtime.gauges import begin_to_read, pending_since
from elastic_pytorch_operator.spec.job import JobKey
from prometheus_client.parser import text_string_to_metric_families

from tests.operator.builders import a_manifest, a_round

LEADING = GaugeValues(leading=True)
NOON = "2026-01-01T12:00:00Z"


def gauges_of(
    cache: Cache, queue: WorkQueue[JobKey] | None = None, *, leading: bool = True
) -> GaugeValues:
    return begin_to_read(
        cache, AgentRegistry(), queue or WorkQueue(), leading=leading, now=0.0, time=NOON
    )()


def read(metrics: Metrics, gauges: GaugeValues = LEADING) -> dict[str, float]:
    """Each sample's value, by its name and labels as Prometheus' parser reads them."""
    families = text_string_to_metric_families(metrics.render(gauges).decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        f"{s.name}{{{','.join(f'{k}={v}' for k, v in sorted(s.labels.items()))}}}": s.value
        for s in samples
    }


def test_names_are_prometheus_own() -> None:
    for family in Metrics().families:
        assert (family.kind == "counter") == family.name.endswith("_total"), family
        assert not {"job", "pod", "instance", "worker"} & set(family.labels), (
            f"{family} takes a label of the scrape's"
        )
        assert ("job_name" in family.labels) is family.name.startswith("elastic_pytorch_job_")
        assert family.text.endswith(".")
        assert family.name.startswith(
            ("elastic_pytorch_", "workqueue_", "controller_runtime_", "rest_client_", "leader_")
        )


def test_every_reason_of_a_round_has_its_series() -> None:
    used = re.findall(
        r"\bnames\.([A-Z_]+)", inspect.getsource(next_round) + inspect.getsource(plan_rounds)
    )
    assert {getattr(names, name) for name in used} == set(ROUND_REASONS)


def test_a_decision_is_told_by_its_round_its_interruption_and_its_cause() -> None:
    metrics, before = Metrics(), Memory()
    interruption = Interruption(
        2, "WorkerLost", since=0.0, seconds=0.7, steps_lost=4, phases={"stop": 0.5, "init": 0.2}
    )
    after = Plan(before, resumed=interruption, round=replace(a_round(0, 1), reason="WorkerLost"))
    metrics.decided("team", before, after)
    metrics.decided("team", after.memory, Plan(after.memory))
    found = read(metrics)
    assert found["elastic_pytorch_rounds_declared_total{namespace=team,reason=WorkerLost}"] == 1
    assert found["elastic_pytorch_interruption_seconds_count{reason=WorkerLost}"] == 1, (
        "once, however often it is remembered"
    )
    assert found["elastic_pytorch_interruption_seconds_bucket{le=1.0,reason=WorkerLost}"] == 1
    assert found["elastic_pytorch_steps_lost_total{namespace=team}"] == 4
    assert (
        found["elastic_pytorch_interrupted_seconds_total{namespace=team,reason=WorkerLost}"] == 0.7
    )
    counts = {
        phase: found[f"elastic_pytorch_interruption_phase_seconds_count{{phase={phase}}}"]
        for phase in PHASES
    }
    assert {phase for phase, count in counts.items() if count} == {"stop", "init"}
    assert found["elastic_pytorch_interruption_phase_seconds_sum{phase=stop}"] == 0.5


def test_set_up_before_a_first_round_counts_as_its_phase() -> None:
    metrics = Metrics()
    metrics.decided(
        "team",
        Memory(),
        Plan(Memory(), round=replace(a_round(0, 1), reason="FirstRound"), set_up_seconds=40.0),
    )
    found = read(metrics)
    assert found["elastic_pytorch_interruption_phase_seconds_sum{phase=prepare}"] == 40.0
    assert found["elastic_pytorch_interruption_phase_seconds_count{phase=start}"] == 0


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
        name: value
        for name, value in found.items()
        if name.startswith("elastic_pytorch_jobs{namespace=default")
    }
    assert {name.rpartition("=")[2][:-1]: value for name, value in states.items() if value} == {
        "Pending": 1,
        "Running": 1,
        "Complete": 1,
    }
    assert len(states) == 7, "also those that no job is in"
    assert found["elastic_pytorch_workers{namespace=default,state=Starting}"] == 1
    assert found["elastic_pytorch_workers{namespace=default,state=Running}"] == 1 + 72, (
        "also those that are not listed"
    )
    assert found["elastic_pytorch_workers{namespace=default,state=Succeeded}"] == 0, (
        "of jobs that have ended none is counted"
    )
    assert found["leader_election_master_status{name=elastic-pytorch-operator}"] == 1
    assert found["workqueue_depth{name=elasticpytorchjob}"] == 1
    standby = read(metrics, gauges_of(cache, queue, leading=False))
    assert not [name for name in standby if name.startswith("elastic_pytorch_jobs{")]
    assert standby["leader_election_master_status{name=elastic-pytorch-operator}"] == 0


def test_agents_are_counted_that_still_speak() -> None:
    registry, metrics = AgentRegistry(), Metrics()
    for worker, heard_at in (("ended", 100.0), ("alive", 195.0)):
        registry.note_heartbeat(
            "uid-lm",
            worker,
            parse_heartbeat({"incarnation": worker, "state": "ready", "round": 0}),
            heard_at,
        )
    found = read(
        metrics, begin_to_read(Cache(), registry, WorkQueue(), leading=True, now=200.0, time=NOON)()
    )
    assert found["elastic_pytorch_agents_connected{}"] == 1


def test_counts_begin_at_zero_for_prometheus_takes_no_note_of_a_first_value() -> None:
    metrics, gauges = Metrics(), GaugeValues(leading=True, jobs={"team": {"Pending": 1}})
    found = read(metrics, gauges)
    for reason in ROUND_REASONS:
        assert (
            found[f"elastic_pytorch_rounds_declared_total{{namespace=team,reason={reason}}}"] == 0
        )
        assert found[f"elastic_pytorch_interruption_seconds_count{{reason={reason}}}"] == 0
    assert found["elastic_pytorch_failures_total{kind=OutOfMemory,namespace=team}"] == 0
    assert found["elastic_pytorch_steps_lost_total{namespace=team}"] == 0
    assert found["elastic_pytorch_token_reviews_total{result=error}"] == 0
    metrics.reconciled("error", 0.1)
    metrics.taken(0.1)
    metrics.worked(0.1)
    metrics.queued()
    metrics.retried()
    metrics.reviewed("invalid")
    metrics.ended("team", {"conditions": [condition("Complete", "True", NOON)]})
    metrics.ended(
        "team", {"conditions": [condition("Failed", "True", NOON) | {"reason": "PodLost"}]}
    )
    assert not set(read(metrics, gauges)) - set(found), (
        "nothing came into being with its first count"
    )


async def test_queue_and_requests_are_counted() -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(metrics)
    queue.add("a")
    queue.add("a")
    queue.add_after_failure("b")
    assert await queue.get() == "a"
    queue.done("a")
    metrics.reconciled("error", 0.2)
    metrics.requested("GET", 0)
    found = read(metrics, GaugeValues(queued=len(queue)))
    name = "{name=elasticpytorchjob}"
    assert (found[f"workqueue_adds_total{name}"], found[f"workqueue_retries_total{name}"]) == (2, 1)
    assert (
        found[f"workqueue_depth{name}"],
        found[f"workqueue_work_duration_seconds_count{name}"],
    ) == (1, 1)
    assert (
        found["controller_runtime_reconcile_total{controller=elasticpytorchjob,result=error}"] == 1
    )
    assert found["rest_client_requests_total{code=<error>,method=GET}"] == 1


def test_a_cluster_needs_no_more_series_for_more_jobs() -> None:
    def count(jobs: int) -> int:
        cache, metrics = Cache(), Metrics()
        manifests = [a_manifest(f"job-{n}") | {"status": {"state": "Running"}} for n in range(jobs)]
        cache.replace_all(manifests, [], FakeCluster()._list("Node"), 0.0)
        return len(read(metrics, gauges_of(cache)))

    assert count(1) == count(100)


def in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    metadata = {
        **manifest["metadata"],
        "namespace": namespace,
        "uid": f"uid-{namespace}-{manifest['metadata']['name']}",
    }
    return manifest | {"metadata": metadata}


def test_each_namespace_has_series_while_it_has_jobs_and_some_minutes_longer() -> None:
    now = [0.0]
    cache, metrics = Cache(), Metrics(clock=lambda: now[0])
    jobs = [
        in_namespace(a_manifest(), name) | {"status": {"state": "Running"}} for name in ("a", "b")
    ]
    cache.replace_all(jobs, [], [], 0.0)
    found = read(metrics, gauges_of(cache))
    assert found["elastic_pytorch_jobs{namespace=a,state=Running}"] == 1
    assert found["elastic_pytorch_jobs{namespace=b,state=Running}"] == 1
    metrics.decided(
        "b", Memory(), Plan(Memory(), round=replace(a_round(0, 1), reason="FirstRound"))
    )
    cache.replace_all(jobs[:1], [], [], 1.0)
    now[0] = KEEP_SECONDS
    found = read(metrics, gauges_of(cache))
    assert not [name for name in found if name.startswith("elastic_pytorch_jobs{namespace=b")]
    assert found["elastic_pytorch_rounds_declared_total{namespace=b,reason=FirstRound}"] == 1, (
        "a last scrape may need it"
    )
    now[0] = KEEP_SECONDS + 1
    found = read(metrics, gauges_of(cache))
    assert not [name for name in found if "namespace=b" in name]
    assert found["elastic_pytorch_steps_lost_total{namespace=a}"] == 0


def test_counts_of_a_namespace_that_no_scrape_has_seen_go_away_too() -> None:
    now = [0.0]
    metrics = Metrics(clock=lambda: now[0])
    metrics.decided("short-lived", Memory(), Plan(Memory(), round=a_round(0, 1)))
    assert "elastic_pytorch_steps_lost_total{namespace=short-lived}" in read(metrics)
    now[0] = KEEP_SECONDS + 1
    assert not [name for name in read(metrics) if "short-lived" in name]


def test_namespaces_may_begin_while_another_thread_renders() -> None:
    metrics, gauges = (
        Metrics(),
        GaugeValues(leading=True, jobs={f"team-{n}": {"Running": 1} for n in range(200)}),
    )
    with ThreadPoolExecutor() as pool:
        renderings = [pool.submit(metrics.render, gauges) for _ in range(4)]
        for number in range(300):
            metrics.decided(
                f"new-{number}",
                Memory(),
                Plan(Memory(), round=replace(a_round(0, 1), reason="FirstRound")),
            )
        for rendering in renderings:
            rendering.result()
    found = read(metrics, gauges)
    assert all(
        found[f"elastic_pytorch_rounds_declared_total{{namespace=new-{n},reason=FirstRound}}"] == 1
        for n in range(300)
    )


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
    jobs = [in_namespace(a_manifest(), "a") | {"status": status}, in_namespace(a_manifest(), "b")]
    cache.replace_all(jobs, [], [], 0.0)
    assert read(Metrics(), gauges_of(cache))["elastic_pytorch_jobs{namespace=b,state=Pending}"] == 1


def condition(type_: str, status: str, time: str) -> dict[str, str]:
    return {"type": type_, "status": status, "lastTransitionTime": time}


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
    assert (
        pending_since(
            {"metadata": {"creationTimestamp": created}, "status": {"conditions": conditions}}
        )
        == since
    )


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
        "elastic_pytorch_jobs_waiting{namespace=default,reason=WaitingForQuota}": 2,
        "elastic_pytorch_longest_pending_seconds{namespace=default,reason=WaitingForQuota}": 3600,
        "elastic_pytorch_jobs_waiting{namespace=default,reason=BackingOff}": 1,
        "elastic_pytorch_longest_pending_seconds{namespace=default,reason=BackingOff}": 120,
    }
    assert not [
        name for name in read(Metrics(), gauges_of(cache, leading=False)) if "jobs_waiting" in name
    ]


def test_ends_of_jobs_are_counted_by_their_reason() -> None:
    metrics = Metrics()
    for how, reason in (
        ("Complete", "WorkersSucceeded"),
        ("Failed", "TooManyFailures"),
        ("Failed", "made up by a user"),
    ):
        metrics.ended("team", {"conditions": [condition(how, "True", NOON) | {"reason": reason}]})
    found = {
        name: value
        for name, value in read(metrics).items()
        if re.search("jobs_(completed|failed)", name) and value
    }
    assert found == {
        "elastic_pytorch_jobs_completed_total{namespace=team}": 1,
        "elastic_pytorch_jobs_failed_total{namespace=team,reason=TooManyFailures}": 1,
        "elastic_pytorch_jobs_failed_total{namespace=team,reason=Other}": 1,
    }


def test_operator_tells_whether_it_is_ready_its_certificate_and_its_limit() -> None:
    metrics = Metrics()
    certificate = (
        "elastic_pytorch_certificate_expiration_timestamp_seconds{name=elastic-pytorch-operator}"
    )
    found = read(
        metrics,
        GaugeValues(
            leading=True, ready=True, certificate_ends_at=1.7e9, memory_limit_bytes=2.0**29
        ),
    )
    assert found["elastic_pytorch_operator_ready{}"] == 1
    assert found["elastic_pytorch_operator_memory_limit_bytes{}"] == 2**29
    assert found[certificate] == 1.7e9
    found = read(metrics, GaugeValues(certificate_ends_at=1.7e9))
    assert found["elastic_pytorch_operator_ready{}"] == 0
    assert found["elastic_pytorch_operator_memory_limit_bytes{}"] == float("inf")
    assert certificate not in found, "a standby replica shows none to agents"


def test_slow_ranks_of_jobs_that_train_are_counted() -> None:
    cache, slow = Cache(), {"state": "Running", "stragglers": [{"rank": 1}, {"rank": 5}]}
    ended = {**slow, "state": "Complete", "conditions": [{"type": "Complete", "status": "True"}]}
    statuses = {"a": slow, "b": slow, "c": {"state": "Running"}, "d": ended}
    cache.replace_all(
        [a_manifest(name) | {"status": status} for name, status in statuses.items()], [], [], 0.0
    )
    assert read(Metrics(), gauges_of(cache))["elastic_pytorch_stragglers{namespace=default}"] == 4
    standby = read(Metrics(), gauges_of(cache, leading=False))
    assert not [name for name in standby if name.startswith("elastic_pytorch_stragglers")]


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
        f"elastic_pytorch_job_wanted_workers{job}}}": 3,
        f"elastic_pytorch_job_ready_workers{job}}}": 2,
        f"elastic_pytorch_job_world_size{job}}}": 2,
        f"elastic_pytorch_job_step{job}}}": 501,
        f"elastic_pytorch_job_step_seconds{job}}}": 0.4,
        f"elastic_pytorch_job_impaired_seconds{job},reason=WorkersMissing}}": 60,
    }
    assert "elastic_pytorch_job_step{job_name=new,namespace=default}" not in found, (
        "it has reported none"
    )
    waiting = Cache()
    waiting.replace_all([a_manifest() | {"status": {**status, "worldSize": 0}}], [], [], 0.0)
    assert "elastic_pytorch_job_step_seconds{job_name=lm,namespace=default}" not in read(
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
    assert found["elastic_pytorch_unreadable_objects{kind=Node}"] == 1
    assert found["elastic_pytorch_unreadable_objects{kind=Pod}"] == 0
    left_out = [name for name in found if name.startswith("elastic_pytorch_namespace_unavailable")]
    assert left_out == [
        f"elastic_pytorch_namespace_unavailable{{namespace={name}}}"
        for name in ("failing", "refused")
    ]
    cache.replace_all([], [], [], 2.0)
    cache.watch_lag.observe(
        "pods", {"metadata": {"namespace": "failing", "uid": "p"}}, 2.0, gone=False
    )
    found = read(metrics, gauges_of(cache))
    assert found["elastic_pytorch_unreadable_objects{kind=Node}"] == 0
    assert not [name for name in found if name.startswith("elastic_pytorch_namespace_unavailable")]
