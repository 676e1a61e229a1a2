import pytest
from elastic_pytorch_operator.informer.watch_lag import WatchLag
from elastic_pytorch_operator.monitoring.probes import failed_checks


def an_object(version: int, uid: str = "u") -> dict[str, object]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("silent_since", "answering_since", "working_seconds", "ill"),
    [
        ({}, 0.0, 0.0, False),
        ({"pods": 990.0}, 0.0, 0.0, False),  # the watch may take a moment
        ({"pods": 900.0}, 0.0, 0.0, True),
        # The API server is away: no watch could report a change.
        ({"pods": 900.0}, None, 0.0, False),
        ({"pods": 500.0}, 990.0, 0.0, False),  # it has only just come back
        ({"pods": 500.0}, 900.0, 0.0, True),
        ({}, None, 30.0, False),
        ({}, None, 301.0, True),
    ],
)
def test_what_ails(
    silent_since: dict[str, float], answering_since: float | None, working_seconds: float, ill: bool
) -> None:
    assert bool(failed_checks(1000.0, silent_since, answering_since, working_seconds)) is ill


def test_complaint_names_the_watch() -> None:
    (complaint,) = failed_checks(1000.0, {"pods": 850.0}, 0.0)
    assert "pods" in complaint
    assert "150 s" in complaint


def test_what_was_written_is_awaited_until_the_watch_tells_it() -> None:
    lag = WatchLag()
    lag.expect("jobs", an_object(5), 10.0)
    lag.expect("jobs", an_object(6), 20.0)
    assert lag.silent_since() == {"jobs": 10.0}, "since the first that is missing"
    lag.observe("jobs", an_object(4), 1.0, gone=False)
    assert lag.silent_since() == {"jobs": 10.0}, "what is older says nothing"
    lag.observe("jobs", an_object(6), 1.0, gone=False)
    assert lag.silent_since() == {}


def test_watch_that_is_ahead_is_not_waited_for() -> None:
    lag = WatchLag()
    lag.observe("pods", an_object(7), 1.0, gone=False)
    lag.expect("pods", an_object(7), 10.0)
    lag.observe("pods", an_object(9, "gone"), 1.0, gone=True)
    lag.expect("pods", an_object(8, "gone"), 10.0)
    assert lag.silent_since() == {}


def test_watch_that_is_late_but_still_reports_is_not_silent() -> None:
    lag = WatchLag()
    lag.expect("pods", an_object(5, "last"), 10.0)
    lag.observe("pods", an_object(3, "first"), 95.0, gone=False)
    assert lag.silent_since() == {"pods": 95.0}
    lag.observe("nodes", an_object(9, "node"), 190.0, gone=False)
    assert lag.silent_since() == {"pods": 95.0}, "another kind's watch is another watch"


@pytest.mark.parametrize(("by_namespace", "since"), [(True, 10.0), (False, 95.0)])
def test_watch_of_another_namespace_may_report_while_this_one_is_dead(
    by_namespace: bool, since: float
) -> None:
    lag = WatchLag(by_namespace=by_namespace)
    for namespace, at in (("dead", 10.0), ("alive", 90.0)):
        lag.expect(
            "pods",
            {"metadata": {"namespace": namespace, "uid": namespace, "resourceVersion": "5"}},
            at,
        )
    lag.observe(
        "pods",
        {"metadata": {"namespace": "alive", "uid": "other", "resourceVersion": "3"}},
        95.0,
        gone=False,
    )
    assert lag.silent_since() == {"pods": since}
