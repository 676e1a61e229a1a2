"""What more workers add: how much, how efficient, and how sure that is."""

import pytest
from elastic_pytorch_operator.planning.scaling.comparison import COMPARABLE_SECONDS, Comparison, compare, nearest, ordinal
from elastic_pytorch_operator.planning.scaling.throughput import Throughput


def speed(workers: int, samples_per_second: float, error: float = 0.0, at: float = 0.0) -> Throughput:
    return Throughput(workers, samples_per_second, error, at)


@pytest.mark.parametrize(
    ("fewer", "more", "added", "efficiency"),
    [
        ((1, 10.0), (2, 20.0), 1.0, 1.0),
        ((3, 30.0), (4, 40.0), 1 / 3, 1.0),
        ((3, 30.0), (4, 31.8), 0.06, 0.18),
        ((3, 30.0), (4, 30.0), 0.0, 0.0),
        ((3, 30.0), (4, 27.0), -0.1, -0.3),
        ((4, 40.0), (8, 60.0), 0.5, 0.5),
    ],
)
def test_what_more_workers_add(fewer: tuple[int, float], more: tuple[int, float], added: float, efficiency: float) -> None:
    for pair in ((speed(*fewer), speed(*more)), (speed(*more), speed(*fewer))):
        found = compare(*pair)
        assert found is not None
        assert (found.fewer, found.more, found.margin) == (fewer[0], more[0], 0)
        assert found.added == pytest.approx(added)
        assert found.efficiency == pytest.approx(efficiency)


def test_margin_grows_with_the_errors_and_with_the_size() -> None:
    small, large = compare(speed(1, 10, 0.1), speed(2, 20, 0.2)), compare(speed(15, 150, 1.5), speed(16, 160, 1.6))
    assert small is not None
    assert large is not None
    assert small.margin == pytest.approx(3 * 2 * 0.01 * 2**0.5)
    assert small.telling
    assert not large.telling, "one worker of sixteen is lost in the noise"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (speed(3, 10), speed(3, 10)),
        (speed(3, 0), speed(4, 10)),
        (speed(3, 10), speed(4, 0)),
        (speed(3, 10, at=0), speed(4, 10, at=COMPARABLE_SECONDS + 1)),
    ],
)
def test_what_cannot_be_compared(one: Throughput, other: Throughput) -> None:
    assert compare(one, other) is None


def test_nearest_size_is_compared() -> None:
    known = [speed(1, 10), speed(2, 20, at=1), speed(6, 50), speed(8, 60, at=10)]
    assert nearest(speed(4, 40), known) == speed(2, 20, at=1)
    assert nearest(speed(5, 45), known) == speed(6, 50)
    assert nearest(speed(4, 40, at=9999), known) is None


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (
            Comparison(3, 4, 61.23, 64.9, 0.18, 0.02),
            "the 4th worker added 6 % (61.2 to 64.9 samples/s), an efficiency of 0.18",
        ),
        (Comparison(3, 4, 15.0, 14.99, -0.002, 0), "the 4th worker added 0 % (15 to 15 samples/s), an efficiency of 0.00"),
        (
            Comparison(4, 8, 40, 30, -0.25, 0),
            "the last 4 of 8 workers made it 25 % slower (40 to 30 samples/s), an efficiency of -0.25",
        ),
    ],
)
def test_words(comparison: Comparison, words: str) -> None:
    assert str(comparison) == words


def test_what_is_not_news() -> None:
    before = Comparison(3, 4, 30, 31.8, 0.18, 0.05)
    assert before.agrees_with(Comparison(3, 4, 40, 42, 0.15, 0.01))
    assert not before.agrees_with(Comparison(3, 4, 40, 48, 0.6, 0.01))
    assert not before.agrees_with(Comparison(2, 3, 30, 31.8, 0.18, 0.05))


def test_ordinals() -> None:
    assert [ordinal(n) for n in (2, 3, 4, 11, 12, 13, 21, 22, 112, 123)] == [
        "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "112th", "123rd",
    ]  # fmt: skip
