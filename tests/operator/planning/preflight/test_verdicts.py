"""What the measurements of a check mean."""

import pytest
from elastic_pytorch_operator.model.check import CheckReport
from elastic_pytorch_operator.planning.preflight.verdicts import Typical, judge, typical_of
from elastic_pytorch_operator.spec.preflight import PreflightPolicy

POLICY = PreflightPolicy(seconds=20, max_slowdown_percent=200)
TYPICAL = Typical(1.0, 0.1)


def report(matmul: float | None = 1.0, all_reduce: float | None = 0.1, error: str = "") -> CheckReport:
    return CheckReport(1, matmul, all_reduce, error)


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        (report(), ""),
        (report(2.0, 0.2), ""),
        (report(2.1), "is slow: its matrix products took 2.1 s, 2.1 times the median of 1 s"),
        (report(1.0, 0.25), "is slow: its all-reduces took 0.25 s, 2.5 times the median of 0.1 s"),
        (report(error="all-reduces: timed out"), "has failed its check: all-reduces: timed out"),
        (None, "has reported no result of its check after 20 s"),
        (report(None, None), ""),
    ],
)
def test_what_makes_a_worker_suspect(reported: CheckReport | None, why: str) -> None:
    verdicts = judge((("a", "b"),), {"b": report()} | ({"a": reported} if reported else {}), (), TYPICAL, POLICY)
    assert verdicts.suspects == ({"a": why} if why else {})
    assert verdicts.passed == ({"b"} if why else {"a", "b"})


def test_a_worker_alone_is_not_compared_with_pairs() -> None:
    assert judge((("a",),), {"a": report(1.0, 9.0)}, (), TYPICAL, POLICY).passed == {"a"}


def test_what_a_partner_that_went_away_may_have_spoilt_is_not_judged() -> None:
    reports = {"b": report(error="all-reduces: reset by peer"), "d": report()}
    verdicts = judge((("a", "b"), ("c", "d")), reports, {"a", "c"}, TYPICAL, POLICY)
    assert (verdicts.passed, verdicts.suspects) == ({"d"}, {})


@pytest.mark.parametrize(
    ("measured", "known", "typical"),
    [
        ([1.0, 3.0], None, 1.0),  # of two, the slow one is compared to the fast one
        ([1.0, 3.0, 3.5], None, 3.0),
        ([None, None], None, None),
        ([3.0, 3.5], 1.0, 1.0),  # newcomers are compared to those that train
    ],
)
def test_what_is_typical(measured: list[float | None], known: float | None, typical: float | None) -> None:
    reports = {str(number): report(seconds, seconds) for number, seconds in enumerate(measured)}
    pairs = (tuple(reports),)
    assert typical_of(pairs, reports, Typical(known, known)) == Typical(typical, typical)


def test_only_pairs_say_what_an_all_reduce_takes() -> None:
    assert typical_of((("a",),), {"a": report(1.0, 0.5)}, Typical()) == Typical(1.0, None)
