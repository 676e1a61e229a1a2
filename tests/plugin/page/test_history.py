"""What is remembered of a job while the page's server runs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_client.page.history import MAX_CHANGES, MAX_LANES, History
from elastic_pytorch_client.reading.job_view import Condition, JobView, Worker

from tests.plugin.recorded_cluster import job_of

START = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def with_states(*states: str) -> JobView:
    workers = tuple(Worker(f"w-{i}", i, None, "", state) for i, state in enumerate(states))
    return replace(job_of("whole"), workers=workers)


def test_sizes_and_states_are_kept_when_they_change() -> None:
    history = History()
    whole, lost = job_of("whole"), job_of("lost")
    for second, job in enumerate((whole, whole, lost, lost, replace(lost, world=0), replace(lost, world=0, round=9))):
        history.take(job, at(second))
    assert [(size.at, size.workers, size.round) for size in history.sizes] == [
        (at(0), whole.size, whole.round),
        (at(2), lost.size, lost.round),
        (at(4), 0, lost.round),
    ]
    assert list(history.lanes[1]) == [(at(0), "Running"), (at(2), "Starting")]
    assert list(history.samples.losses) == [whole.progress.loss, lost.progress.loss]


def test_a_round_of_the_same_size_is_another_group() -> None:
    history, whole = History(), job_of("whole")
    history.take(whole, at(0))
    history.take(replace(whole, round=whole.round + 1), at(1))
    assert [size.round for size in history.sizes] == [whole.round, whole.round + 1]


def test_a_worker_without_a_pod_is_gone_and_of_two_pods_the_one_in_the_group_counts() -> None:
    history = History()
    history.take(with_states("Running", "Running"), at(0))
    history.take(with_states("Running"), at(1))
    assert list(history.lanes[1]) == [(at(0), "Running"), (at(1), "")]
    pods = (Worker("a", 0, 0, "", "Running"), Worker("b", 0, None, "", "Starting"))
    history.take(replace(job_of("whole"), workers=pods), at(2))
    assert list(history.lanes[0]) == [(at(0), "Running")]


def test_what_is_remembered_is_bounded() -> None:
    history = History()
    history.take(with_states(*["Running"] * (MAX_LANES + 9)), at(0))
    for second in range(3 * MAX_CHANGES):
        history.take(with_states("Running" if second % 2 else "Silent"), at(second))
    assert len(history.lanes) == MAX_LANES
    assert len(history.lanes[0]) == MAX_CHANGES


def test_a_worker_that_a_large_job_does_not_list_has_not_gone_once_the_job_is_small() -> None:
    large = replace(job_of("whole"), round=4, workers=(FIRST,), unlisted={"Running": (1,)})
    assert depart(large, replace(large, unlisted={})) == []


def test_a_worker_that_leaves_in_order_has_trained_in_the_round_before() -> None:
    leaving = replace(job_of("whole"), round=4, workers=(FIRST, replace(LOST, state="Leaving", rank=None)))
    gone = replace(leaving, round=5, workers=(FIRST,))
    assert depart(leaving, gone) == [("w-1", "node-1", 3)]


def depart(*after: JobView) -> list[tuple[str, str, int]]:
    """The departures of a job of two workers, as it is and as it is later."""
    history = History()
    workers = tuple(Worker(f"w-{i}", i, i, f"node-{i}", "Running") for i in range(2))
    job = replace(job_of("whole"), workers=workers, round=3)
    for second, each in enumerate((job, *after)):
        history.take(each, at(second))
    return [(each.worker, each.node, each.round) for each in history.departures]


FIRST = Worker("w-0", 0, 0, "node-0", "Running")
LOST = Worker("w-1", 1, None, "node-1", "Lost")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"workers": (FIRST,)}, [("w-1", "node-1", 3)]),
        ({"workers": (FIRST, LOST)}, [("w-1", "node-1", 3)]),
        ({"workers": (FIRST, replace(LOST, state="Leaving"))}, []),
        ({"workers": (FIRST, replace(LOST, state="Ready"))}, []),
        ({"workers": (FIRST,), "unlisted": {"Running": (1,)}}, []),
        ({"workers": (FIRST, LOST), "unlisted": {"Running": (2,)}}, [("w-1", "node-1", 3)]),
        ({"workers": (FIRST,), "suspended": True}, []),
        ({"workers": (), "conditions": (Condition("Complete", True, "", "", None),)}, []),
    ],
)
def test_workers_that_have_gone(change: dict[str, Any], expected: list[tuple[str, str, int]]) -> None:
    later = replace(job_of("whole"), round=4, **change)
    assert depart(later, later) == expected
