"""Rules over a table of pages, fields or manifests: one case for each rule, which fails with all that is wrong."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def assert_none(faults: Iterable[str]) -> None:
    """Fails with the faults, one a line; of the list in an `assert`, pytest shows the beginning only."""
    found = list(faults)
    assert not found, "\n".join(["faults:", *found])


def fault_of(check: Callable[..., object], *given: Any) -> Iterator[str]:
    """What a check raises, if it does."""
    try:
        check(*given)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
