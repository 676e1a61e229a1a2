"""The version of a committed state of training, by which the newest is found."""

from typing import NamedTuple


class StateVersion(NamedTuple):
    """When a state was committed; the larger version is the newer one.

    Attributes:
        generation: grows with each group that is formed, so that what a cut-off group still writes is never considered newer.
        step: the optimizer step, counted over the whole training.
    """

    generation: int
    step: int
