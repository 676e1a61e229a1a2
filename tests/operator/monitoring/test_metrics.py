import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.job_counts import ROUND_REASONS
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning import plan_rounds
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.reporting.interruption import PHASES, Interruption
from elastic_pytorch_operator.planning.rounds import next_round
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey
from prometheus_client.parser import text_string_to_metric_families

from tests.operator.builders import a_manifest, a_round

NOON = "2026-01-01T12:00:00Z"
LEADING = GaugeValues(leading=True)


def read(metrics: Metrics, gauges: GaugeValues = LEADING) -> dict[str, float]:
    """Each sample's value as Prometheus' parser reads it, by its name without prefix and labels."""
    families = text_string_to_metric_families(metrics.render(gauges).decode())
    samples = [sample for family in families for sample in family.samples]
    names = [sample.name.removeprefix("elastic_pytorch_") for sample in samples]
    labels = [",".join(f"{k}={v}" for k, v in sorted(s.labels.items())) for s in samples]
    values = [sample.value for sample in samples]
    return {f"{n}{{{of}}}": v for n, of, v in zip(names, labels, values, strict=True)}


def a_pending_job(namespace: str) -> tuple[JobKey, dict[str, Any]]:
    return JobKey(namespace, "lm"), a_manifest(namespace=namespace)


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
    assert found["rounds_declared_total{namespace=team,reason=WorkerLost}"] == 1
    assert found["interruption_seconds_count{reason=WorkerLost}"] == 1, (
        "once, however often it is remembered"
    )
    assert found["interruption_seconds_bucket{le=1.0,reason=WorkerLost}"] == 1
    assert found["steps_lost_total{namespace=team}"] == 4
    assert found["interrupted_seconds_total{namespace=team,reason=WorkerLost}"] == 0.7
    counts = {
        phase: found[f"interruption_phase_seconds_count{{phase={phase}}}"] for phase in PHASES
    }
    assert {phase for phase, count in counts.items() if count} == {"stop", "init"}
    assert found["interruption_phase_seconds_sum{phase=stop}"] == 0.5


def test_set_up_before_a_first_round_counts_as_its_phase() -> None:
    metrics = Metrics()
    metrics.decided(
        "team",
        Memory(),
        Plan(Memory(), round=replace(a_round(0, 1), reason="FirstRound"), set_up_seconds=40.0),
    )
    found = read(metrics)
    assert found["interruption_phase_seconds_sum{phase=prepare}"] == 40.0
    assert found["interruption_phase_seconds_count{phase=start}"] == 0


def test_counts_begin_at_zero_for_prometheus_takes_no_note_of_a_first_value() -> None:
    metrics, gauges = Metrics(), GaugeValues(leading=True, jobs=[a_pending_job("team")])
    found = read(metrics, gauges)
    for reason in ROUND_REASONS:
        assert found[f"rounds_declared_total{{namespace=team,reason={reason}}}"] == 0
        assert found[f"interruption_seconds_count{{reason={reason}}}"] == 0
    assert found["failures_total{kind=OutOfMemory,namespace=team}"] == 0
    assert found["steps_lost_total{namespace=team}"] == 0
    assert found["token_reviews_total{result=error}"] == 0
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


def test_namespaces_may_begin_while_another_thread_renders() -> None:
    metrics = Metrics()
    gauges = GaugeValues(leading=True, jobs=[a_pending_job(f"team-{n}") for n in range(200)])
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
        found[f"rounds_declared_total{{namespace=new-{n},reason=FirstRound}}"] == 1
        for n in range(300)
    )


def condition(type_: str, status: str, time: str) -> dict[str, str]:
    return {"type": type_, "status": status, "lastTransitionTime": time}


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
        "jobs_completed_total{namespace=team}": 1,
        "jobs_failed_total{namespace=team,reason=TooManyFailures}": 1,
        "jobs_failed_total{namespace=team,reason=Other}": 1,
    }


def test_operator_tells_whether_it_is_ready_its_certificate_and_its_limit() -> None:
    metrics = Metrics()
    certificate = "certificate_expiration_timestamp_seconds{name=elastic-pytorch-operator}"
    found = read(
        metrics,
        GaugeValues(
            leading=True, ready=True, certificate_ends_at=1.7e9, memory_limit_bytes=2.0**29
        ),
    )
    assert found["operator_ready{}"] == 1
    assert found["operator_memory_limit_bytes{}"] == 2**29
    assert found[certificate] == 1.7e9
    found = read(metrics, GaugeValues(certificate_ends_at=1.7e9))
    assert found["operator_ready{}"] == 0
    assert found["operator_memory_limit_bytes{}"] == float("inf")
    assert certificate not in found, "a standby replica shows none to agents"
