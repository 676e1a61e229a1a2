"""Tables of situations, each of which a test judges."""

from collections.abc import Mapping
from typing import Any

import pytest


def situations(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Runs a test with each row of a table: the values of its parameters, by what is the matter."""
    several = "," in names
    return pytest.mark.parametrize(
        names, [pytest.param(*(row if several else (row,)), id=name) for name, row in rows.items()]
    )
