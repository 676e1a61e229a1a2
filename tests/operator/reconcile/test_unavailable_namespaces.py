"""Some of the namespaces that the operator watches cannot be listed: the others are served."""

import asyncio
import logging

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.controller import RESYNC_SECONDS, UNAVAILABLE_SECONDS
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster
from tests.operator.running_controller import RunningController


def a_controller() -> RunningController[FaultyCluster]:
    """For jobs of the namespaces a and b."""
    cluster = FaultyCluster()
    cluster.namespaces = ("a", "b")
    return RunningController(cluster)


def pods_in(running: RunningController[FaultyCluster], namespace: str) -> int:
    return len(running.cluster.pods(namespace))


async def test_job_of_a_namespace_that_is_refused_is_run_once_that_answers() -> None:
    running = a_controller()
    running.watching = False  # as kopf does not watch what was never listed
    running.cluster.unlistable["b"] = 403
    for namespace in "ab":
        running.cluster.apply_job(a_manifest(namespace=namespace, replicas=1))
    async with running.runs():
        await asyncio.sleep(2 * UNAVAILABLE_SECONDS)
        assert (pods_in(running, "a"), pods_in(running, "b")) == (1, 0)
        assert running.cache.unavailable == {"b"}
        del running.cluster.unlistable["b"]
        await asyncio.sleep(UNAVAILABLE_SECONDS + 5.0)
        assert (pods_in(running, "a"), pods_in(running, "b")) == (1, 1)
        assert running.cache.unavailable == set()


async def test_namespace_that_is_refused_later_is_kept_as_it_was_and_the_others_are_listed_on() -> (
    None
):
    running = a_controller()
    for namespace in "ab":
        running.cluster.apply_job(a_manifest(namespace=namespace, replicas=1))
    async with running.runs():
        await asyncio.sleep(5.0)
        assert (pods_in(running, "a"), pods_in(running, "b")) == (1, 1)
        running.cluster.unlistable["b"] = 404
        running.watching = False
        running.cluster.remove_job("lm", "a")
        await asyncio.sleep(2 * RESYNC_SECONDS)
        assert running.cache.keys == [JobKey("b", "lm")]
        owner = JobKey("b", "lm"), running.cluster.job("lm", "b")["metadata"]["uid"]
        assert len(running.cache.pods.workers_of(owner)) == 1
        running.cluster.remove_job("lm", "b")
        await asyncio.sleep(RESYNC_SECONDS)
        assert running.cache.keys == [JobKey("b", "lm")], "it may only seem so"
        del running.cluster.unlistable["b"]
        await asyncio.sleep(UNAVAILABLE_SECONDS + 5.0)
        assert running.cache.keys == []


async def test_each_change_of_a_namespace_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    running = a_controller()
    async with running.runs():
        running.cluster.unlistable["b"] = 403
        await asyncio.sleep(3 * RESYNC_SECONDS)
        del running.cluster.unlistable["b"]
        await asyncio.sleep(RESYNC_SECONDS)
    about = [record for record in caplog.records if "namespace" in vars(record)]
    told = [(record.levelname, record.getMessage(), vars(record)["namespace"]) for record in about]
    assert told == [
        ("WARNING", "a namespace is left out: cannot list b", "b"),
        ("INFO", "a namespace is there again", "b"),
    ]


async def test_trouble_that_may_pass_is_waited_for_at_first() -> None:
    running = a_controller()
    running.cluster.unlistable["b"] = 503
    with pytest.raises(ClusterError):
        await running.controller.prime()
    assert not running.cache.primed
    await running.controller.prime(leave_out_failing=True)
    assert running.cache.primed
    assert running.cache.unavailable == {"b"}
