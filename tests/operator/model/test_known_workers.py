from typing import Any

import pytest
from elastic_pytorch_operator.model.known_workers import KnownWorker, count_states, known_workers
from elastic_pytorch_operator.model.observed import PodView

from tests.operator.builders import a_dead_pod, a_pod
from tests.situations import situations

T1, T2, T3 = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))
LISTED = {"name": "w0", "index": 0, "state": "Starting", "node": "node-0"}


def status(newest: str | None = T2, **indexes: str) -> dict[str, Any]:
    return {
        "workers": [LISTED],
        "unlistedWorkers": indexes,
        "operatorState": {"newestPodTime": newest},
    }


def there(index: int, created: str = T1, name: str = "", **fields: Any) -> PodView:
    return a_pod(index, name=name, creation_time=created, **fields)


def test_list_of_all_is_taken_as_it_is() -> None:
    found = known_workers(
        {"workers": [LISTED, {"name": "w1", "index": 1, "rank": 7, "state": "Running"}]}, []
    )
    assert found == (KnownWorker("w0", 0, "Starting", False), KnownWorker("w1", 1, "Running", True))
    assert [worker.heard for worker in found] == [False, True]
    assert known_workers({}, [there(0)]) == ()


@situations(
    "pods, pod",
    {
        "is there": ([there(1)], "w1"),
        "was the last to report": ([there(1, T2)], "w1"),
        "has gone": ([], ""),
        "has gone, and its replacement has not reported": ([there(1, T3, "new")], ""),
        "is there beside its replacement": ([there(1), there(1, T3, "new")], "w1"),
        "has replaced another one": (
            [a_dead_pod(1, name="old", creation_time=T1), there(1, T2)],
            "w1",
        ),
        "replaced it within a second": (
            [a_dead_pod(1, name="old", creation_time=T2), there(1, T2)],
            "w1",
        ),
        "in any order": ([there(1, T2), a_dead_pod(1, name="old", creation_time=T2)], "w1"),
        "is listed": ([there(1, T1, "w0")], ""),
    },
)
def test_index_is_that_of_the_newest_pod_which_was_there(pods: list[PodView], pod: str) -> None:
    worker = known_workers(status(Running="1"), pods)[-1]
    assert worker == KnownWorker(pod, 1, "Running", True)
    assert worker.name == (pod or "worker 1")


def test_without_the_time_no_pod_of_a_cluster_is_meant() -> None:
    assert known_workers(status(None, Running="1"), [there(1)])[-1].pod == ""


def test_only_the_state_tells_of_a_worker_that_is_not_listed_whether_it_was_in_the_group() -> None:
    found = known_workers(
        status(Running="1", Ready="2", Silent="3", Succeeded="4", Lost="5", Leaving="6"), []
    )[1:]
    assert [(worker.state, worker.heard, worker.ranked) for worker in found] == [
        ("Running", True, True),
        ("Ready", True, False),
        ("Silent", True, False),
        ("Succeeded", True, False),
        ("Lost", False, False),
        ("Leaving", False, False),
    ]


def test_states_are_counted_over_all_workers() -> None:
    assert count_states(status(Running="1-5,7", Starting="8-9")) == {"Starting": 3, "Running": 6}
    assert count_states({"workers": [{"name": "w"}]}) == {"Starting": 1}
    assert count_states({}) == {}


@pytest.mark.parametrize("broken", [{"Running": "nonsense"}, {"Running": None}, {}, None])
def test_what_cannot_be_read_names_nobody(broken: Any) -> None:
    assert len(known_workers({"workers": [LISTED], "unlistedWorkers": broken}, [there(1)])) == 1
