"""Quantities, as the API has them."""

import pytest
from elastic_pytorch_operator.api.quantities import parse_quantity


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
def test_what_is_none(text: object) -> None:
    assert parse_quantity(text) is None
