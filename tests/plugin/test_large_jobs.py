from collections.abc import Callable
from typing import Any

import pytest
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.pods.workers import add_pods
from elastic_pytorch_client.reading.text import parse_ranges
from elastic_pytorch_client.worker_logs import Choice, find_workers, read_logs

from tests.plugin.recorded_cluster import Object, RecordedCluster, recorded
from tests.situations import situations

Epj = Callable[..., tuple[int, str]]
BEFORE, AFTER = (f"2026-11-21T18:0{minute}:00Z" for minute in (0, 1))
LISTED = recorded("young")["job"]["status"]["workers"][0]


def a_large_job(**states: str) -> Object:
    job = recorded("young")["job"]
    job["status"] |= {"workers": [LISTED], "unlistedWorkers": states}
    return job


def a_worker_pod(
    index: int, name: str = "", *, created: str = BEFORE, phase: str = "Running", **metadata: Any
) -> Object:
    found = recorded("young")["pods"][0]
    owner = {"uid": recorded("young")["job"]["metadata"]["uid"]}
    found["metadata"] |= {
        "name": name or f"p{index}",
        "creationTimestamp": created,
        "ownerReferences": [owner],
        **metadata,
    }
    found["metadata"]["labels"]["elasticpytorch.dev/worker-index"] = str(index)
    found["spec"]["nodeName"] = "node-0"
    found["status"]["phase"] = phase
    return found


def a_large_cluster(*pods: Object, **states: str) -> RecordedCluster:
    cluster = RecordedCluster("young")
    cluster.put(a_large_job(**states))
    cluster._pods = list(pods)
    return cluster


def view(**states: str) -> JobView:
    return view_job(a_large_job(**states))


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("", ()),
        ("7", (7,)),
        ("0-2,5", (0, 1, 2, 5)),
        ("x", ()),
        ("3-1", ()),
        ("1-", ()),
        ("0-999999", ()),
    ],
)
def test_ranges(text: str, indexes: tuple[int, ...]) -> None:
    assert parse_ranges(text) == indexes


@situations(
    "pod, state",
    {
        "as the status says": (a_worker_pod(7), "Running"),
        "one that is being deleted": (a_worker_pod(7, deletionTimestamp="now"), "Leaving"),
        "has ended since": (a_worker_pod(7, phase="Failed"), "Lost"),
        "has succeeded since": (a_worker_pod(7, phase="Succeeded"), "Succeeded"),
        "not known to the status": (a_worker_pod(9), "Starting"),
    },
)
def test_pod_that_is_not_listed_is_a_worker_without_a_rank(pod: Object, state: str) -> None:
    [first, worker] = add_pods(view(Running="7"), [pod]).workers
    assert first.name == LISTED["name"]
    assert (worker.name, worker.rank, worker.node, worker.state) == (
        pod["metadata"]["name"],
        None,
        "node-0",
        state,
    )


def test_of_several_pods_of_an_index_the_newest_is_the_one_that_the_status_means() -> None:
    found = add_pods(
        view(Running="7"),
        [a_worker_pod(7, "new", created=AFTER), a_worker_pod(7, "old", phase="Failed")],
    )
    assert [(worker.name, worker.state) for worker in found.workers[1:]] == [
        ("old", "Lost"),
        ("new", "Running"),
    ]


def test_stores_and_pods_of_another_job_of_the_name_are_no_workers() -> None:
    store, other = a_worker_pod(1), a_worker_pod(2)
    store["metadata"]["labels"]["elasticpytorch.dev/role"] = "store"
    other["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert len(add_pods(view(Running="1-2"), [store, other]).workers) == 1


def test_job_whose_status_lists_all_is_left_as_it_is() -> None:
    job = view_job(recorded("young")["job"])
    assert add_pods(job, [a_worker_pod(9)]) is job
    assert job.size == len(job.members) == 3


def test_group_is_counted_with_the_workers_that_are_not_listed() -> None:
    job = view(Running="1-99", Starting="100-127")
    assert (job.size, len(job.members)) == (100, 1)
    assert add_pods(job, [a_worker_pod(1), a_worker_pod(100)]).size == 2, (
        "of those whose pods are there"
    )


def test_screen_counts_those_that_are_not_listed(epj: Epj) -> None:
    shown = epj(a_large_cluster(Running="1-99", Starting="100-127"), "status", "char-lm")[1]
    assert "100 train" in shown
    assert "and 99 more Running, 28 more Starting" in shown


def test_logs_are_those_of_the_pods() -> None:
    cluster = a_large_cluster(a_worker_pod(1), a_worker_pod(2), Running="1-2")
    cluster.logs = {name: [f"2026-01-01T00:00:00Z {name}"] for name in (LISTED["name"], "p1", "p2")}
    job = view_job(cluster.get_job("team", "char-lm"))
    assert [line.text for line in read_logs(cluster, job, Choice())] == [LISTED["name"], "p1", "p2"]
    assert [line.text for line in read_logs(cluster, job, Choice(indexes=frozenset({2})))] == ["p2"]


def test_pods_are_not_asked_for_where_the_status_tells_enough() -> None:
    cluster = a_large_cluster(Running="1-2")
    job = view_job(cluster.get_job("team", "char-lm"))
    cluster.faults["list_pods"] = [EpjError("not to be asked")]
    for choice in (Choice(ranks=frozenset({0})), Choice(indexes=frozenset({LISTED["index"]}))):
        assert find_workers(cluster, job, choice) is job


def test_rank_that_the_status_does_not_tell_is_not_guessed(
    epj: Epj, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = epj(a_large_cluster(a_worker_pod(2), Running="1-2"), "logs", "char-lm", "--rank", "2")
    assert code != 0
    assert "no rank 2: choose it by --index" in capsys.readouterr().err


@pytest.mark.parametrize(("state", "silent"), [("Running", False), ("Starting", True)])
def test_agent_of_a_worker_that_is_not_listed_is_called_silent_only_if_it_is(
    epj: Epj, state: str, silent: bool
) -> None:
    cluster = a_large_cluster(a_worker_pod(1), **{state: "1"})
    job = cluster.get_job("team", "char-lm")
    job["status"]["conditions"] = recorded("lost")["job"]["status"]["conditions"]
    cluster.put(job)
    shown = epj(cluster, "why", "char-lm")[1]
    assert ("p1 has run for more than a minute" in shown) is silent
