"""Says which object cannot be built of a job. Pure.

`spec` refuses what a builder could not read, by the field's path. What it misses is the job's fault all the same: the same builder fails
at each further try.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from elastic_pytorch_operator.spec.fields import MAX_WORDS


class UnbuildableError(ValueError):
    """An object that the operator cannot build as a job asks for it: no further try helps, until the job's spec is changed."""

    def __init__(self, kind: str, fault: Exception) -> None:
        super().__init__(f"{kind}: the operator cannot build it: {fault!r}"[:MAX_WORDS])


@contextmanager
def building(kind: str) -> Iterator[None]:
    """Decorates a builder: whatever it raises names what it builds.

    Raises:
        UnbuildableError: instead of any other exception.
    """
    try:
        yield
    except Exception as fault:
        raise UnbuildableError(kind, fault) from fault
