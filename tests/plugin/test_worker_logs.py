from collections.abc import Iterator
from itertools import islice

import pytest
from elastic_pytorch_client import worker_logs
from elastic_pytorch_client.errors import NotAllowed, Unreachable
from elastic_pytorch_client.worker_logs import Choice, Line, follow_logs, read_logs

from tests.plugin.recorded_cluster import RecordedCluster, job_of, recorded

RANK0, RANK1, RANK2 = (worker.name for worker in job_of("young").members)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is looked at more often than once a second."""
    monkeypatch.setattr(worker_logs, "REFRESH_SECONDS", 0.2)


def lines(pod: str, first: int, last: int) -> list[str]:
    return [
        f"2026-01-01T00:00:{second:02}.000000001Z {pod} says {second}"
        for second in range(first, last + 1)
    ]


def texts(following: Iterator[Line], count: int | None = None) -> list[str]:
    return [line.text for line in islice(following, count)]


def cluster_with_logs() -> RecordedCluster:
    cluster = RecordedCluster("young")
    cluster.logs = {pod: lines(pod, 1, 3) for pod in (RANK0, RANK1, RANK2)}
    return cluster


def ended(cluster: RecordedCluster) -> dict[str, object]:
    job = cluster.get_job("team", "char-lm")
    job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    return job


def test_everybody_one_after_the_other_by_rank() -> None:
    found = [
        (line.worker.rank, line.text)
        for line in read_logs(cluster_with_logs(), job_of("young"), Choice(), tail_lines=1)
    ]
    assert found == [(0, f"{RANK0} says 3"), (1, f"{RANK1} says 3"), (2, f"{RANK2} says 3")]


def test_pods_without_a_log_are_left_out() -> None:
    cluster = cluster_with_logs()
    del cluster.logs[RANK1]
    assert {line.worker.rank for line in read_logs(cluster, job_of("young"), Choice())} == {0, 2}


def test_one_rank_or_index() -> None:
    job, cluster = job_of("lost"), RecordedCluster("lost")
    assert [w.name for w in Choice(ranks=frozenset({1})).of(job)] == ["char-lm-worker-2-w9n54"]
    assert [w.name for w in Choice(indexes=frozenset({1})).of(job)] == ["char-lm-worker-1-nz26n"]
    assert list(read_logs(cluster, job, Choice(ranks=frozenset({7})))) == []


def test_follows_to_the_end_of_the_job() -> None:
    cluster = cluster_with_logs()
    cluster.put(ended(cluster))
    following = follow_logs(cluster, "team", "char-lm", Choice(frozenset({1})))
    assert texts(following) == [f"{RANK1} says {second}" for second in (1, 2, 3)]


def test_follows_a_rank_to_the_pod_that_has_it_next_from_then_on() -> None:
    cluster = cluster_with_logs()
    following = follow_logs(cluster, "team", "char-lm", Choice(frozenset({1})))
    assert texts(following, 3) == [f"{RANK1} says {second}" for second in (1, 2, 3)]
    cluster.logs[RANK2] += lines(RANK2, 4, 6)
    cluster.put(recorded("lost")["job"])  # RANK2's pod has rank 1 now, and RANK1's is gone
    assert texts(following, 3) == [f"{RANK2} says {second}" for second in (4, 5, 6)]
    following.close()


def test_replacements_are_read_from_their_beginning() -> None:
    cluster = cluster_with_logs()
    following = follow_logs(
        cluster, "team", "char-lm", Choice(indexes=frozenset({1})), tail_lines=1
    )
    assert next(following).text == f"{RANK1} says 3"
    cluster.put(recorded("lost")["job"])
    cluster.logs["char-lm-worker-1-nz26n"] = lines("new", 1, 2)
    assert texts(following, 2) == ["new says 1", "new says 2"]
    following.close()


def test_a_broken_connection_is_made_again_and_nothing_is_told_twice() -> None:
    cluster = cluster_with_logs()
    following = follow_logs(cluster, "team", "char-lm", Choice(frozenset({0})))
    assert texts(following, 3)[-1] == f"{RANK0} says 3"
    cluster.faults["get_job"] = [Unreachable("no answer")]
    cluster.faults["pod_log"] = [Unreachable("no answer")]
    cluster.logs[RANK0] += lines(RANK0, 4, 4)
    assert next(following).text == f"{RANK0} says 4"
    following.close()


def test_line_without_a_time_is_shown_and_hides_none_of_those_that_come_later() -> None:
    cluster = cluster_with_logs()
    cluster.logs[RANK0].insert(1, "unable to retrieve container logs for containerd://0f")
    following = follow_logs(cluster, "team", "char-lm", Choice(frozenset({0})))
    found = list(islice(following, 4))
    assert [line.text for line in found][1:3] == [
        "unable to retrieve container logs for containerd://0f",
        f"{RANK0} says 2",
    ]
    assert [line.at[-12:] for line in found] == ["1.000000001Z", "", "2.000000001Z", "3.000000001Z"]
    cluster.logs[RANK0] += lines(RANK0, 4, 4)
    assert next(following).text == f"{RANK0} says 4"
    following.close()


def test_who_may_not_read_logs_is_told_so() -> None:
    cluster = cluster_with_logs()
    cluster.faults["pod_log"] = [NotAllowed("pods/log is forbidden")]
    with pytest.raises(NotAllowed):
        list(read_logs(cluster, job_of("young"), Choice()))
    cluster.faults["pod_log"] = [NotAllowed("pods/log is forbidden")]
    with pytest.raises(NotAllowed):
        next(follow_logs(cluster, "team", "char-lm", Choice(frozenset({0}))))


def test_a_deleted_job_ends_it() -> None:
    cluster = cluster_with_logs()
    following = follow_logs(cluster, "team", "char-lm", Choice(frozenset({0})))
    next(following)
    cluster.remove("char-lm")
    assert texts(following) == [f"{RANK0} says 2", f"{RANK0} says 3"]
