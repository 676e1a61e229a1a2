"""The tables of how long workers that are not heard may be alive."""

import pytest
from elastic_pytorch_operator.planning.workers.silence import DEAF, GROUP_HEARD, NO_GROUP, TABLE, Wait
from silence_table import BEGIN, END, page, wait


def test_page_has_each_row() -> None:
    text = page(f"before\n{BEGIN}old\n{END}after\n")
    assert all(f"\n{wait(row)}\n" in text for row in TABLE)
    assert (text.startswith("before\n"), text.endswith("after\n"), "old" in text) == (True, True, False)
    assert page(text) == text


@pytest.mark.parametrize(
    ("row", "times"),
    [
        (NO_GROUP, "| 5 s, and 1 s after each arrival (5 s in a crowd) | 15 s |"),
        (GROUP_HEARD, "| 3 s * | 3 s * |"),
        (DEAF, "| 10 s | no limit |"),
    ],
)
def test_times(row: Wait, times: str) -> None:
    assert times in wait(row)


def test_page_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        page("no markers")
