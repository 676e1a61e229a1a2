"""When the operator is to be started anew, and when it is not its fault."""

import pytest
from elastic_pytorch_operator.informer.watch_lag import Hearing
from elastic_pytorch_operator.monitoring.health import Vitals, find_ailments


def an_object(version: int, uid: str = "u") -> dict[str, object]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("vitals", "ill"),
    [
        (Vitals(1000.0, {}, 0.0), False),
        (Vitals(1000.0, {"pods": 990.0}, 0.0), False),  # the watch may take a moment
        (Vitals(1000.0, {"pods": 900.0}, 0.0), True),
        (Vitals(1000.0, {"pods": 900.0}, None), False),  # the API server is away: nobody would tell
        (Vitals(1000.0, {"pods": 500.0}, 990.0), False),  # it has only just come back
        (Vitals(1000.0, {"pods": 500.0}, 900.0), True),
        (Vitals(1000.0, {}, None, longest_reconcile_seconds=30.0), False),
        (Vitals(1000.0, {}, None, longest_reconcile_seconds=301.0), True),
    ],
)
def test_what_ails(vitals: Vitals, ill: bool) -> None:
    assert bool(find_ailments(vitals)) is ill


def test_complaint_names_the_watch() -> None:
    (complaint,) = find_ailments(Vitals(1000.0, {"pods": 850.0}, 0.0))
    assert "pods" in complaint
    assert "150 s" in complaint


def test_what_was_written_is_awaited_until_the_watch_tells_it() -> None:
    hearing = Hearing()
    hearing.expect("jobs", an_object(5), 10.0)
    hearing.expect("jobs", an_object(6), 20.0)
    assert hearing.silent_since() == {"jobs": 10.0}, "since the first that is missing"
    hearing.hear("jobs", an_object(4), gone=False)
    assert hearing.silent_since() == {"jobs": 10.0}, "what is older says nothing"
    hearing.hear("jobs", an_object(6), gone=False)
    assert hearing.silent_since() == {}


def test_watch_that_is_ahead_is_not_waited_for() -> None:
    hearing = Hearing()
    hearing.hear("pods", an_object(7), gone=False)
    hearing.expect("pods", an_object(7), 10.0)
    hearing.hear("pods", an_object(9, "gone"), gone=True)
    hearing.expect("pods", an_object(8, "gone"), 10.0)
    assert hearing.silent_since() == {}


def test_what_a_list_no_longer_has_is_not_waited_for() -> None:
    hearing = Hearing()
    hearing.expect("pods", an_object(1, "a"), 10.0)
    hearing.expect("pods", an_object(2, "b"), 11.0)
    hearing.forget_others("pods", {"b"})
    assert hearing.silent_since() == {"pods": 11.0}
