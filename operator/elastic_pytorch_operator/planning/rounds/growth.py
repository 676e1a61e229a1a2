"""`resizePolicy.minSecondsBetweenGrowths`: the least time between two growths of a group.

`status.operatorState` stores when that was: no other object records it when the operator restarts. Each round that makes the
group larger sets it, the first one included. A round that forms for another reason takes ready newcomers along.
"""

from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.spec.job import Job


def grown_before(job: Job, observed: Observed, known: float | None) -> float | None:
    """When the group last grew, monotonic seconds; None: never. An operator that has just started reads it from the status.

    Args:
        job: with its status.
        observed: the moment.
        known: what is remembered.
    """
    stored = read_operator_state(job.status).last_growth_time
    if known is not None or not stored:
        return known
    return observed.now - seconds_between(stored, observed.time)


def grows(before: Round | None, declared: Round | None) -> bool:
    """Whether a round that is declared now makes the group larger."""
    return declared is not None and declared.size > (before.size if before else 0)


def may_grow_at(job: Job, grown_at: float | None) -> float:
    """When newcomers may join, monotonic seconds."""
    return 0.0 if grown_at is None else grown_at + job.growth_seconds
