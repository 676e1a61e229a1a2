"""Elastic jobs that share a queue of a real Kueue: they take what is free, and give it back."""

import time

import pytest

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.e2e.kueue.queued_jobs import Clock, PodCount, in_order, starts, steps
from tests.e2e.kueue.workloads import Workload
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

WORKERS = 6


def test_a_job_gives_workers_back_to_another_and_takes_them_again(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    make_queue(WORKERS)
    with PodCount(namespace) as pods:
        clock = Clock()
        a = start_queued("a", WORKERS, 2)
        a.until_world(WORKERS, QUEUE_SECONDS)
        leader = a.members()[0]
        a.until_stepping(leader, WORKERS, QUEUE_SECONDS)
        clock.tell("a job takes all 6 workers of the queue, from its creation to a step")
        until(
            lambda: all(w.holds("PodsReady") for w in Workload.all_in(namespace)),
            "Kueue to know that all are ready",
        )
        before = a.status["round"]

        b = start_queued("b", 4, 2)
        b.until_world(2, QUEUE_SECONDS)
        clock.tell("another one starts with its 2, from its creation to its round")
        status = a.until_world(4, QUEUE_SECONDS)
        assert status["round"] == before + 1, "both leave in one round"
        a.until_stepping(leader, 4, QUEUE_SECONDS)
        b.until_stepping(b.members()[0], 2, QUEUE_SECONDS)
    assert pods.most <= WORKERS, "quota is given back when its pods are gone"
    assert a.members()[0] == leader
    assert all(starts(a, pod) == 1 for pod in a.members())
    assert in_order(steps(a, leader)), "no step is lost"

    clock = Clock()
    b.kubectl("delete", "epj", "b")
    a.until_world(WORKERS, QUEUE_SECONDS)
    clock.tell("the first takes them again, from the other's deletion to its round")
    a.until_stepping(leader, WORKERS, QUEUE_SECONDS)
    assert starts(a, leader) == 1
    assert in_order(steps(a, leader)), "no step is lost"
    assert a.status["failures"] == 0


def test_an_evicted_job_saves_and_goes_on_from_its_step(
    make_queue: MakeQueue, start_queued: StartQueued, high_priority: str, namespace: str
) -> None:
    make_queue(WORKERS)
    a = start_queued("a", WORKERS, 2)
    a.until_world(WORKERS, QUEUE_SECONDS)
    leader = a.members()[0]
    a.until_stepping(leader, WORKERS, QUEUE_SECONDS)
    last = 0

    with PodCount(namespace) as pods:
        clock = Clock()
        high = start_queued("high", WORKERS, WORKERS, priority=high_priority)
        end = time.monotonic() + QUEUE_SECONDS
        while a.pods():
            last = max([last, *steps(a, leader)])
            assert time.monotonic() < end, a.status
            time.sleep(0.1)
        clock.tell(
            "a job of higher priority takes all: from its creation until the other's pods are gone"
        )
        high.until_world(WORKERS, QUEUE_SECONDS)
        clock.tell("then to its round")
    assert pods.most <= WORKERS, "quota is given back when its pods are gone"
    assert a.status["failures"] == 0

    clock = Clock()
    high.kubectl("delete", "epj", "high")
    until(
        lambda: len(a.members()) == WORKERS,
        lambda: f"the evicted job to run again: {a.status}",
        QUEUE_SECONDS,
    )
    clock.tell("the evicted job runs again, from the deletion of the other to its round")
    leader = a.members()[0]
    a.until_stepping(leader, WORKERS, QUEUE_SECONDS)
    assert steps(a, leader)[0] > last > 1, "the last step was on disk before the pods were gone"
    assert a.status["failures"] == 0


def test_workers_run_on_the_nodes_of_their_flavor(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    node, label = "elastic-pytorch-worker2", "e2e.elasticpytorch.dev/pool"
    run_kubectl("label", "node", node, f"{label}={namespace}")
    try:
        make_queue(3, labels={label: namespace})
        job = start_queued("job", 3, 2)
        job.until_world(3, QUEUE_SECONDS)
        assert {pod["spec"]["nodeName"] for pod in job.pods()} == {node}
    finally:
        run_kubectl("label", "node", node, f"{label}-")
