"""What the status says of a group that a new leader has not heard. It probably trains, so what was last known of it stands."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.planning.workers.liveness import Candidate

TRAINED = (names.RUNNING, names.RESIZING)


def may_train(old: Mapping[str, Any], candidates: Sequence[Candidate], size: int) -> bool:
    """Whether a group that trained may do so still, although no round of it is known.

    Args:
        old: the status that there is.
        candidates: the job's workers, assessed.
        size: of the newest round as far as it is known.
    """
    return not size and old.get("state") in TRAINED and any(candidate.unheard for candidate in candidates)


def unheard_group(candidates: Sequence[Candidate]) -> list[Condition]:
    """Returns Running, Resizing and Degraded, all of them unknown."""
    unheard = sum(candidate.unheard for candidate in candidates)
    workers = "1 worker has" if unheard == 1 else f"{unheard} workers have"
    running = f"{workers} not been heard since a replica of the operator began to lead; the group probably trains"
    rest = "the group has not been heard, see condition Running"
    return [
        Condition(names.RUNNING, None, names.WORKERS_UNHEARD, running),
        Condition(names.RESIZING, None, names.WORKERS_UNHEARD, rest),
        Condition(names.DEGRADED, None, names.WORKERS_UNHEARD, rest),
    ]
