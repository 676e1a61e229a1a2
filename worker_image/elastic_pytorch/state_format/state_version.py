"""The version of a committed state of training."""

from typing import NamedTuple


class StateVersion(NamedTuple):
    """When a state was committed; the larger version is the newer one."""

    # Grows with each group that is formed, so that what a cut-off group still writes is never
    # considered newer.
    generation: int
    step: int  # of the optimizer, counted over the whole training
