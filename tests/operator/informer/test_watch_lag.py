"""What a watch misses as it begins. `test_health.py` has watches that have died."""

import pytest
from elastic_pytorch_operator.informer.watch_lag import BEGIN_SECONDS, WatchLag


def an_object(uid: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, "resourceVersion": "5"}}


@pytest.mark.parametrize(
    ("listed_at", "began_at", "now", "missed"),
    [
        (10.0, 20.0, 20.0 + BEGIN_SECONDS, True),
        (10.0, 20.0, 20.0, False),
        (30.0, 20.0, 40.0, False),
        (10.0, None, 40.0, False),
    ],
    ids=["gone before the watch began", "the watch still begins", "there since the watch began", "no watch has begun"],
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
