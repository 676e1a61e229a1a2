"""Work beside the training takes a tenth of the time, and a piece that stood still delays none."""

import pytest
from elastic_pytorch.wakeup import Rest


@pytest.mark.parametrize(
    ("pieces", "rest"),
    [
        pytest.param([2.0], 18.0, id="nine times as long as the piece"),
        pytest.param([2.0, 40.0], 18.0, id="the node stood still"),
        pytest.param([2.0, 40.0, 40.0], 18.0, id="twice"),
        pytest.param([2.0, 40.0, 40.0, 40.0], 360.0, id="the work takes longer now"),
        pytest.param([40.0, 2.0], 18.0, id="it takes less"),
    ],
)
def test_the_shortest_of_the_last_three_counts(pieces: list[float], rest: float) -> None:
    measured = Rest()
    assert [measured.after(seconds) for seconds in pieces][-1] == rest


@pytest.mark.parametrize(
    ("pieces", "failed", "rest"),
    [
        ([], 3.0, 27.0),
        ([], 60.0, 60.0),
        ([2.0], 60.0, 18.0),
        ([20.0], 60.0, 60.0),
        ([20.0], 0.1, pytest.approx(0.9)),
    ],
)
def test_a_failure_is_no_measure(pieces: list[float], failed: float, rest: float) -> None:
    measured = Rest()
    for seconds in pieces:
        measured.after(seconds)
    assert measured.after_failure(failed) == rest
    assert measured.after(50.0) == 9 * min([50.0, *pieces])
