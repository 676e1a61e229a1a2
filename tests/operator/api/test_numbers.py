"""Numbers, as the API has them in labels, annotations and quantities."""

import pytest
from elastic_pytorch_operator.api.numbers import parse_count, parse_quantity


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("7", 7), ("007", 7), ("999999999", 999_999_999)])
def test_count(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1_000", "²", "\u0662", "1" * 10, "9" * 5000, None, 1, ["1"]])
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


@pytest.mark.parametrize("text", ["", None, ".", "..", "1.2.3", "1 Gi", "Gi", "1gi", "1e400", "NaN", "\u0662"])
def test_what_is_no_quantity(text: object) -> None:
    assert parse_quantity(text) is None


@pytest.mark.parametrize("text", ["9" * 310, "-" + "9" * 310, "9" * 300 + "Ei", "inf", float("inf")])
def test_quantity_is_finite(text: object) -> None:
    assert parse_quantity(text) is None
