"""How many examples and seeds random tests try, by pytest's `--hypothesis-profile`.

`make test` has the gate's, `make unit` fewer, and `make test-variants` tries again with many.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

PROFILES = {"unit": 10, "gate": 30, "long": 300}

Test = TypeVar("Test", bound=Callable[..., Any])


def examples(count: int) -> int:
    """The profile's share of `count`, at least 1; the profile `long` tries all."""
    return max(1, count * settings.default.max_examples // PROFILES["long"])


def seeds(count: int) -> Callable[[Test], Test]:
    """Runs a test with each of `examples(count)` seeds, marked as Hypothesis marks its own."""

    def with_seeds(test: Test) -> Test:
        return pytest.mark.seeds(pytest.mark.parametrize("seed", range(examples(count)))(test))

    return with_seeds
