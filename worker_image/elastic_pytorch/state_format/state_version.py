"""The name of a committed state of training, by which the newest is found."""

from typing import NamedTuple


class StateVersion(NamedTuple):
    """When a state was committed; the larger one is the newer.

    Attributes:
        generation: grows with each group that is formed, so that what a cut-off group still writes is never considered newer.
        step: the optimizer step, within all of training.
    """

    generation: int
    step: int
