"""Who is in a group: whole units only, those that stay first.

A unit is `spec.unitReplicas` workers of consecutive indices, which hold one replica of the model. A unit that lacks a worker is of no use
to the group: its others wait until it is whole again. Most jobs have units of one worker.
"""

from collections.abc import Iterable, Sequence

from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.spec.sizes import in_whole_units, largest_allowed


def choose_group(
    stay: Sequence[Candidate], joiners: Sequence[Candidate], wanted: int, allowed: Sequence[int], unit: int = 1
) -> list[Candidate]:
    """Returns the workers of the next group: units of which all have been in the group first, those with newcomers only last.

    Args:
        stay: in the order of their ranks.
        joiners: workers that are ready and in no group, in the order of their indices; none has the
            index of another or of a member.
        allowed: none: any.
    """
    ready = [*stay, *joiners]
    if unit > 1:
        members = {candidate.worker for candidate in stay}
        whole = [unit_ for unit_ in units_of(ready, unit) if len(unit_) == unit]
        whole.sort(key=lambda unit_: sum(candidate.worker not in members for candidate in unit_))
        ready = [candidate for unit_ in whole for candidate in unit_]
    ready = ready[: wanted - wanted % unit]
    return ready[: largest_allowed(len(ready), allowed)]


def torn_workers(candidates: Iterable[Candidate], unit: int) -> frozenset[str]:
    """The workers that are ready, and wait for others of their unit."""
    if unit == 1:
        return frozenset()
    ready = [candidate for candidate in candidates if candidate.liveness is Liveness.READY]
    whole = in_whole_units({candidate.index for candidate in ready}, unit)
    return frozenset(candidate.worker for candidate in ready if candidate.index not in whole)


def units_of(candidates: Sequence[Candidate], unit: int) -> list[list[Candidate]]:
    """The units that some workers are of, in the order of the first worker of each."""
    if unit == 1:
        return [[candidate] for candidate in candidates]
    units: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        units.setdefault(candidate.index // unit, []).append(candidate)
    return list(units.values())
