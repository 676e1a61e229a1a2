"""Who is in a group, and with which rank: whole units only, those that stay first.

A unit is `spec.unitReplicas` workers of consecutive indices, which hold one replica of the model. A unit that lacks a worker is of no use
to the group: its others wait until it is whole again. Most jobs have units of one worker.
"""

from collections.abc import Iterable, Mapping, Sequence

from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.spec.sizes import in_whole_units, largest_allowed


def choose_group(
    stay: Sequence[Candidate], joiners: Sequence[Candidate], wanted: int, allowed: Sequence[int], unit: int = 1
) -> list[Candidate]:
    """Returns the workers of the next group: units of which all have been in the group first, those with newcomers only last.

    Args:
        stay: members that stay, in the order of their ranks.
        joiners: workers that are ready and in no group, in the order of their indices; none has the index of another or of a member.
        wanted: how many workers the group should have.
        allowed: the sizes that it may have; none: any.
        unit: how many workers a unit has.
    """
    ready = [*stay, *joiners]
    if unit > 1:
        members = {candidate.worker for candidate in stay}
        whole = [unit_ for unit_ in _units_of(ready, unit) if len(unit_) == unit]
        whole.sort(key=lambda unit_: sum(candidate.worker not in members for candidate in unit_))
        ready = [candidate for unit_ in whole for candidate in unit_]
    ready = ready[: wanted - wanted % unit]
    return ready[: largest_allowed(len(ready), allowed)]


def assign_ranks(before: Mapping[str, int], group: Sequence[Candidate], store_port: int = 0, unit: int = 1) -> list[Candidate]:
    """Puts a group in rank order: unit by unit, and within each by index.

    A unit of the round before keeps its place if the group still has it; the others fill the gaps by index. The first unit changes its
    place with the second if the agent of rank 0 has not told its next port yet: new processes of the others might reach the store that is
    about to end.

    Args:
        before: the ranks of the round before, by worker.
        group: the new group, whole units in any order.
        store_port: of the round before; 0: there was none.
        unit: how many workers a unit has.
    """
    units = _units_of(group, unit)
    places: list[list[Candidate] | None] = [None] * len(units)
    rest = []
    for members in units:
        members.sort(key=lambda candidate: (candidate.index, candidate.worker))
        known = next((rank // unit for candidate in members if (rank := before.get(candidate.worker)) is not None), len(units))
        if known < len(units) and places[known] is None:
            places[known] = members
        else:
            rest.append(members)
    newcomers = iter(sorted(rest, key=lambda members: (members[0].index, members[0].worker)))
    ranked = [members if members is not None else next(newcomers) for members in places]
    if len(ranked) > 1 and before.get(ranked[0][0].worker) == 0 and ranked[0][0].port == store_port:
        ranked[:2] = reversed(ranked[:2])
    return [candidate for members in ranked for candidate in members]


def torn_workers(candidates: Iterable[Candidate], unit: int) -> frozenset[str]:
    """The workers that are ready, and wait for others of their unit."""
    if unit == 1:
        return frozenset()
    ready = [candidate for candidate in candidates if candidate.liveness is Liveness.READY]
    whole = in_whole_units({candidate.index for candidate in ready}, unit)
    return frozenset(candidate.worker for candidate in ready if candidate.index not in whole)


def _units_of(candidates: Sequence[Candidate], unit: int) -> list[list[Candidate]]:
    """The units that some workers are of, in the order of the first worker of each."""
    if unit == 1:
        return [[candidate] for candidate in candidates]
    units: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        units.setdefault(candidate.index // unit, []).append(candidate)
    return list(units.values())
