import pytest
from elastic_pytorch_operator.api.numbers import (
    MAX_INDEX,
    format_ranges,
    parse_count,
    parse_quantity,
    parse_ranges,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.event_loop_time import MAX_TURN_CALLS, fits


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("7", 7), ("007", 7), ("999999999", 999_999_999)]
)
def test_count(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", "1.0", " 1", "1_000", "²", "\u0662", "1" * 10, "9" * 5000, None, 1, ["1"]],
)
def test_what_is_no_count(text: object) -> None:
    assert parse_count(text) is None


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2", 2.0),
        (2, 2.0),
        (".5", 0.5),
        ("2.", 2.0),
        ("500m", 0.5),
        ("1.5Gi", 1.5 * 2**30),
        ("1e3", 1000.0),
        ("2E", 2e18),
        ("-1", -1.0),
        ("0", 0.0),
    ],
)
def test_quantity(text: object, amount: float) -> None:
    assert parse_quantity(text) == pytest.approx(amount)


@pytest.mark.parametrize(
    "text", ["", None, ".", "..", "1.2.3", "1 Gi", "Gi", "1gi", "1e400", "NaN", "\u0662"]
)
def test_what_is_no_quantity(text: object) -> None:
    assert parse_quantity(text) is None


@pytest.mark.parametrize(
    "text", ["9" * 10_000 + "x", "9" * 5_000 + "." + "9" * 5_000 + "x", "." + "9" * 10_000 + "x"]
)
def test_time_to_refuse_a_text_grows_with_its_length_only(text: str) -> None:
    assert parse_quantity(text) is None
    assert fits(lambda: parse_quantity(text), MAX_TURN_CALLS), (
        "the square of the length would take seconds"
    )


@pytest.mark.parametrize(
    "text", ["9" * 310, "-" + "9" * 310, "9" * 300 + "Ei", "inf", float("inf")]
)
def test_quantity_is_finite(text: object) -> None:
    assert parse_quantity(text) is None


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
    [
        "x",
        "1-",
        "-1",
        "1,,2",
        ",",
        " 1",
        "1 - 2",
        "3-1",
        "2-2",
        "2,1",
        "1,1",
        "0-3,3",
        f"{MAX_INDEX + 1}",
        "0-99999999999",
    ],
)
def test_what_is_no_notation_holds_no_index(text: str) -> None:
    assert parse_ranges(text) == ()


@given(
    st.lists(
        st.integers(0, 20) | st.integers(MAX_INDEX - 9, MAX_INDEX + 9) | st.integers(), max_size=60
    )
)
def test_what_was_written_is_read_but_for_what_is_no_index_of_a_worker(indexes: list[int]) -> None:
    assert parse_ranges(format_ranges(indexes)) == tuple(
        sorted({index for index in indexes if 0 <= index <= MAX_INDEX})
    )


@given(st.text(st.sampled_from("0123456789,-²٢ ")))
def test_what_is_read_is_what_would_be_written(text: str) -> None:
    indexes = parse_ranges(text)
    assert parse_ranges(format_ranges(indexes)) == indexes


def test_longest_notation_of_a_job_stays_short() -> None:
    assert len(format_ranges(range(0, 4096, 2))) < 10_240
