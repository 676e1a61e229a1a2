"""What Prometheus reads: names that it accepts, series that do not grow with the jobs, numbers that are right."""

from dataclasses import replace

from elastic_pytorch_operator.census import take_census
from elastic_pytorch_operator.fake_cluster import FakeCluster
from elastic_pytorch_operator.heartbeat import parse_heartbeat
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.metrics import ROUND_REASONS, Census, Metrics
from elastic_pytorch_operator.plan import Memory, Plan
from elastic_pytorch_operator.recovery import Recovery
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue
from operator_builders import a_manifest, a_round
from prometheus_client.parser import text_string_to_metric_families

LEADING = Census(leading=True)


def read(metrics: Metrics, census: Census = LEADING) -> dict[str, float]:
    """Each sample's value, by its name and labels as Prometheus' parser reads them."""
    families = text_string_to_metric_families(metrics.render(census).decode())
    samples = [sample for family in families for sample in family.samples]
    return {f"{s.name}{{{','.join(f'{k}={v}' for k, v in sorted(s.labels.items()))}}}": s.value for s in samples}


def test_names_are_prometheus_own() -> None:
    for family in Metrics().families:
        assert (family.kind == "counter") == family.name.endswith("_total"), family
        assert not {"job", "namespace", "pod", "worker"} & set(family.labels), f"{family} grows with what runs"
        assert family.text.endswith(".")
        assert family.name.startswith(("elastic_pytorch_", "workqueue_", "controller_runtime_", "rest_client_", "leader_"))


def test_a_decision_is_told_by_its_round_its_recovery_and_its_cause() -> None:
    metrics, before = Metrics(), Memory()
    recovery = Recovery(2, "WorkerLost", since=0.0, seconds=0.7, steps_lost=4)
    after = Plan(replace(before, recovery=recovery), round=replace(a_round(0, 1), reason="WorkerLost"))
    metrics.decided(before, after)
    metrics.decided(after.memory, Plan(after.memory))
    found = read(metrics)
    assert found["elastic_pytorch_rounds_declared_total{reason=WorkerLost}"] == 1
    assert found["elastic_pytorch_recovery_seconds_count{reason=WorkerLost}"] == 1, "once, however often it is remembered"
    assert found["elastic_pytorch_recovery_seconds_bucket{le=1.0,reason=WorkerLost}"] == 1
    assert found["elastic_pytorch_steps_lost_total{}"] == 4


def test_jobs_and_workers_are_told_by_the_leader_alone() -> None:
    store, metrics = Store(), Metrics()
    running = a_manifest() | {"status": {"state": "Running", "workers": [{"state": "Running"}, {"state": "Starting"}]}}
    ended = {"state": "Complete", "conditions": [{"type": "Complete", "status": "True"}], "workers": [{"state": "Succeeded"}]}
    other = a_manifest("other") | {"status": ended}
    store.replace_all([running, other, a_manifest("new")], [], [], 0.0)
    queue: WorkQueue[JobKey] = WorkQueue()
    queue.add(JobKey("default", "new"))
    found = read(metrics, take_census(store, Roster(), queue, leading=True, now=0.0))
    states = {name: value for name, value in found.items() if name.startswith("elastic_pytorch_jobs{")}
    assert {name.partition("=")[2][:-1]: value for name, value in states.items() if value} == {
        "Pending": 1,
        "Running": 1,
        "Complete": 1,
    }
    assert len(states) == 7, "also those that no job is in"
    assert found["elastic_pytorch_workers{state=Starting}"] == 1
    assert found["elastic_pytorch_workers{state=Succeeded}"] == 0, "of jobs that have ended none is counted"
    assert found["leader_election_master_status{name=elastic-pytorch-operator}"] == 1
    assert found["workqueue_depth{name=elasticpytorchjob}"] == 1
    standby = read(metrics, take_census(store, Roster(), queue, leading=False, now=0.0))
    assert not [name for name in standby if name.startswith("elastic_pytorch_jobs")]
    assert standby["leader_election_master_status{name=elastic-pytorch-operator}"] == 0


def test_agents_are_counted_that_still_speak() -> None:
    roster, metrics = Roster(), Metrics()
    for worker, heard_at in (("ended", 100.0), ("alive", 195.0)):
        roster.hear("uid-lm", worker, parse_heartbeat({"incarnation": worker, "state": "ready", "round": 0}), heard_at)
    found = read(metrics, take_census(Store(), roster, WorkQueue(), leading=True, now=200.0))
    assert found["elastic_pytorch_agents_connected{}"] == 1


def test_counts_begin_at_zero_for_prometheus_takes_no_note_of_a_first_value() -> None:
    metrics = Metrics()
    found = read(metrics)
    for reason in ROUND_REASONS:
        assert found[f"elastic_pytorch_rounds_declared_total{{reason={reason}}}"] == 0
        assert found[f"elastic_pytorch_recovery_seconds_count{{reason={reason}}}"] == 0
    assert found["elastic_pytorch_failures_total{kind=OutOfMemory}"] == 0
    assert found["elastic_pytorch_token_reviews_total{result=error}"] == 0
    metrics.reconciled("error", 0.1)
    metrics.taken(0.1)
    metrics.worked(0.1)
    metrics.queued()
    metrics.retried()
    metrics.reviewed("invalid")
    assert not set(read(metrics)) - set(found), "nothing came into being with its first count"


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
    found = read(metrics, Census(queued=len(queue)))
    name = "{name=elasticpytorchjob}"
    assert (found[f"workqueue_adds_total{name}"], found[f"workqueue_retries_total{name}"]) == (2, 1)
    assert (found[f"workqueue_depth{name}"], found[f"workqueue_work_duration_seconds_count{name}"]) == (1, 1)
    assert found["controller_runtime_reconcile_total{controller=elasticpytorchjob,result=error}"] == 1
    assert found["rest_client_requests_total{code=<error>,method=GET}"] == 1


def test_a_cluster_needs_no_more_series_for_more_jobs() -> None:
    def count(jobs: int) -> int:
        store, metrics = Store(), Metrics()
        manifests = [a_manifest(f"job-{n}") | {"status": {"state": "Running"}} for n in range(jobs)]
        store.replace_all(manifests, [], FakeCluster()._list("Node"), 0.0)
        return len(read(metrics, take_census(store, Roster(), WorkQueue(), leading=True, now=0.0)))

    assert count(1) == count(100)
