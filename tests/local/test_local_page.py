"""The page of `kubectl epj ui` on a cluster in memory."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any

import pytest
from elastic_pytorch_client.errors import NoSuchJob, NotFound
from elastic_pytorch_local.cluster.in_memory import MAX_EVENTS, FakeCluster
from elastic_pytorch_local.page import MemoryReader, serve_page
from elastic_pytorch_operator.api.resources import EVENTS, PODS

from tests.operator.builders import a_manifest

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
LOGS = {"lm-worker-0": [f"2026-11-21T18:00:0{i}.000000Z step {i}" for i in range(5)]}


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.apply_job(a_manifest())
    return cluster


@pytest.fixture
def reader(cluster: FakeCluster) -> Iterator[MemoryReader]:
    reader = MemoryReader(cluster, LOGS, lambda: NOW)
    yield reader
    reader.stop()


NAME = str(a_manifest()["metadata"]["name"])


def get(url: str, path: str) -> tuple[int, Any]:
    host, _, secret = url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{secret}{path}")
    response = connection.getresponse()
    body = response.read()
    connection.close()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(body) if is_json else body.decode()


async def a_pod(cluster: FakeCluster, index: int) -> None:
    name = f"{NAME}-worker-{index}"
    labels = {"elasticpytorch.dev/job-name": NAME, "elasticpytorch.dev/worker-index": str(index)}
    about = {"name": name, "namespace": "default", "labels": labels}
    await cluster.create(PODS, {"metadata": about, "spec": {"containers": [{"name": "pytorch"}]}})


async def test_it_reads_what_there_was_and_what_comes(
    cluster: FakeCluster, reader: MemoryReader
) -> None:
    nodes = [node["metadata"]["name"] for node in reader.list_nodes()]
    assert nodes == ["node-0", "node-1", "node-2"]
    created = reader.get_job("default", NAME)["metadata"]["creationTimestamp"]
    assert created == "2026-11-21T18:00:00Z"
    for index in range(2):
        await a_pod(cluster, index)
    pods = reader.list_pods("default", NAME)
    assert [pod["spec"]["nodeName"] for pod in pods] == nodes[:2]
    assert len(reader.list_pods("default", NAME, [1])) == 1
    assert reader.list_pods("default", "other") == reader.list_pods("other", NAME) == []
    event = {
        "regarding": {"kind": "ElasticPyTorchJob", "namespace": "default", "name": NAME},
        "reason": "FirstRound",
    }
    await cluster.create(EVENTS, event)
    assert reader.list_events("default", "ElasticPyTorchJob", NAME) == [event]
    assert reader.list_events("default", "Pod", NAME) == []
    cluster.remove_job(NAME)
    with pytest.raises(NoSuchJob):
        reader.get_job("default", NAME)
    assert reader.list_jobs(None) == []


def test_logs(reader: MemoryReader) -> None:
    assert list(reader.pod_log("default", "lm-worker-0", tail_lines=2)) == LOGS["lm-worker-0"][-2:]
    assert list(reader.pod_log("default", "lm-worker-0", tail_lines=9)) == LOGS["lm-worker-0"]
    with pytest.raises(NotFound):
        list(reader.pod_log("default", "none"))


def test_a_watch_tells_changes_until_it_is_stopped(
    cluster: FakeCluster, reader: MemoryReader
) -> None:
    changes = reader.watch_jobs(None)
    assert next(changes)[0] == "ADDED"
    cluster.scale_job(NAME, 2)
    kind, job = next(changes)
    assert (kind, job["spec"]["replicas"]) == ("MODIFIED", 2)
    threading.Timer(0.01, reader.stop).start()
    assert list(changes) == []
    assert list(reader.watch_jobs("default", NAME)) == []


def test_the_page_is_there_until_it_ends(cluster: FakeCluster, reader: MemoryReader) -> None:
    with serve_page(reader, lambda: NOW) as url:
        assert url.startswith("http://127.0.0.1:")
        assert "<title>Jobs</title>" in get(url, "")[1]
        code, found = get(url, f"jobs/default/{NAME}")
        assert (code, found["row"]["name"], found["row"]["state"]) == (200, NAME, "Pending")
        assert get(url, "nodes")[1] == {"nodes": [], "more": 0, "well": 0, "listed": True}
        assert "kind: ElasticPyTorchJob" in get(url, f"manifests/default/{NAME}")[1]["yaml"]
        host = url.removeprefix("http://").partition("/")[0]
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection(host, timeout=60).connect()


async def test_a_long_run_keeps_its_newest_events(
    cluster: FakeCluster, reader: MemoryReader
) -> None:
    about = {"kind": "ElasticPyTorchJob", "namespace": "default", "name": NAME}
    for number in range(MAX_EVENTS + 3):
        await cluster.create(EVENTS, {"regarding": about, "note": str(number)})
    notes = [event["note"] for event in reader.list_events(**about)]
    assert notes == [str(number) for number in range(3, MAX_EVENTS + 3)]
