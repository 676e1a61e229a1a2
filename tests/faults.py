"""Rules over a table of pages, fields or manifests: one case each, which fails with all faults."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def assert_none(faults: Iterable[str]) -> None:
    """Fails with the faults, one a line: pytest shows only the beginning of a list."""
    found = list(faults)
    assert not found, "\n".join(["faults:", *found])


def fault_of(check: Callable[..., object], *given: Any) -> Iterator[str]:
    """What a check raises, if it does."""
    try:
        check(*given)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
