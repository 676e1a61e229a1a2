"""What a watch misses as it begins. `test_health.py` has watches that have died."""

import pytest
from elastic_pytorch_operator.informer.watch_lag import (
    BEGIN_AGAIN_SECONDS,
    BEGIN_SECONDS,
    FAILING_SECONDS,
    MIN_LIST_SECONDS,
    WatchLag,
)

from tests.situations import situations


def an_object(uid: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, "resourceVersion": "5"}}


@situations(
    "listed_at, began_at, now, missed",
    {
        "gone before the watch began": (10.0, 20.0, 20.0 + BEGIN_SECONDS, True),
        "the watch still begins": (10.0, 20.0, 20.0, False),
        "there since the watch began": (30.0, 20.0, 40.0, False),
        "no watch has begun": (10.0, None, 40.0, False),
    },
)
def test_what_was_listed_and_does_not_come_with_the_watch(
    listed_at: float, began_at: float | None, now: float, *, missed: bool
) -> None:
    lag = WatchLag()
    for uid in ("stays", "gone"):
        lag.expect("pods", an_object(uid), listed_at)
    if began_at is not None:
        lag.observe("pods", an_object("stays"), began_at, gone=False, begins=True)
    assert lag.missed(now) is missed


def test_all_pods_may_be_gone_before_their_watch_began() -> None:
    lag = WatchLag()
    lag.expect("pods", an_object("gone"), 10.0)
    lag.observe("nodes", an_object("node"), 20.0, gone=False, begins=True)
    assert lag.missed(30.0)
    lag.forget_others("pods", set())
    assert not lag.missed(30.0), "a list has said so"


def of_namespace(namespace: str, version: int = 5) -> dict[str, object]:
    return {"metadata": {"uid": namespace, "namespace": namespace, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("by_namespace", "silent"), [(True, {"pods": 20.0}), (False, {"pods": 10.0})]
)
def test_watch_of_a_namespace_that_is_known_to_fail_is_not_waited_for(
    by_namespace: bool, silent: dict[str, float]
) -> None:
    lag = WatchLag(by_namespace=by_namespace)
    lag.expect("pods", of_namespace("gone"), 10.0)
    lag.expect("pods", of_namespace("there"), 20.0)
    lag.fails("pods", "gone" if by_namespace else "", 25.0)
    assert lag.silent_since() == silent, "the one watch of all namespaces must not fail for long"
    assert lag.failing(25.0) == ({"gone"} if by_namespace else set())
    lag.observe("pods", of_namespace("gone", 4), 30.0, gone=False)
    assert (lag.failing(30.0), lag.silent_since()["pods"]) == (
        set(),
        20.0 if by_namespace else 30.0,
    ), "it reports again"


def test_watch_of_a_namespace_without_objects_fails_no_longer_once_it_lasts() -> None:
    lag = WatchLag(by_namespace=True)
    lag.fails("workloads", "empty", 10.0)
    assert lag.failing(10.0 + FAILING_SECONDS - 1.0) == {"empty"}
    assert lag.failing(10.0 + FAILING_SECONDS) == set(), (
        "it has nothing to report, and has not failed since"
    )
    lag.fails("workloads", "empty", 1_000.0)
    assert lag.failing(1_001.0) == {"empty"}


def test_watch_that_begins_again_has_the_cluster_listed_once() -> None:
    lag = WatchLag()
    lag.observe("pods", an_object("known"), 10.0, gone=False)
    lag.listed(90.0)
    assert not lag.missed(99.0)
    lag.begins_again(100.0)
    assert not lag.missed(100.0), "it has not begun yet"
    assert lag.missed(90.0 + MIN_LIST_SECONDS)
    lag.listed(90.0 + MIN_LIST_SECONDS)
    assert not lag.missed(1_000.0)


@pytest.mark.parametrize("period_seconds", [1, 10])
def test_watches_that_fail_all_the_time_have_the_cluster_listed_now_and_then(
    period_seconds: int,
) -> None:
    lag, lists = WatchLag(), 0
    for second in range(600):
        if second % period_seconds == 0:
            lag.begins_again(float(second))
        if lag.missed(float(second)):
            lag.listed(float(second))
            lists += 1
    assert lists == 600 / MIN_LIST_SECONDS


def test_list_that_began_before_a_watch_has_begun_again_does_not_count() -> None:
    lag = WatchLag()
    lag.begins_again(100.0)
    lag.listed(100.0)
    assert lag.missed(100.0 + MIN_LIST_SECONDS)
    lag.listed(100.0 + BEGIN_AGAIN_SECONDS)
    assert not lag.missed(1_000.0)


def test_memory_is_that_of_the_objects_that_are_there() -> None:
    lag = WatchLag(by_namespace=True)
    for number in range(1_000):
        found = {"metadata": {"uid": f"{number}", "namespace": "team", "resourceVersion": "5"}}
        lag.observe("pods", found, 1.0, gone=False)
        lag.expect("pods", {"metadata": {**found["metadata"], "resourceVersion": "6"}}, 1.0)
    lag.forget_others("pods", {"7"})
    [watch] = lag._watches.values()
    assert (set(watch.reported), set(watch.awaited)) == ({"7"}, {"7"})
