"""Sets of indexes as Indexed Jobs write them."""

import pytest
from elastic_pytorch_operator.api.index_ranges import MAX_INDEX, format_ranges, parse_ranges
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 1, 2, 3, 5, 7, 8, 9], "0-3,5,7-9"),
        ([9, 7, 7, 8], "7-9"),
        ([0, 2, 4], "0,2,4"),
    ],
)
def test_notation(indexes: list[int], text: str) -> None:
    assert format_ranges(indexes) == text
    assert parse_ranges(text) == tuple(sorted(set(indexes)))


@pytest.mark.parametrize(
    "text",
    ["x", "1-", "-1", "1,,2", ",", " 1", "1 - 2", "3-1", "2-2", "2,1", "1,1", "0-3,3", f"{MAX_INDEX + 1}", "0-99999999999"],
)
def test_what_is_no_notation_holds_no_index(text: str) -> None:
    assert parse_ranges(text) == ()


@given(st.sets(st.integers(0, MAX_INDEX), max_size=60))
def test_what_was_written_is_read(indexes: set[int]) -> None:
    assert parse_ranges(format_ranges(indexes)) == tuple(sorted(indexes))


def test_longest_notation_of_a_job_stays_short() -> None:
    assert len(format_ranges(range(0, 4096, 2))) < 10_240
