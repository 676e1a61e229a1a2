"""Moments of the operator's monotonic clock, in seconds; None where there is none."""


def earliest(*moments: float | None) -> float | None:
    """Returns the first of several moments; None if none of them is set."""
    return min((moment for moment in moments if moment is not None), default=None)
