"""Chooses the members of a group and their ranks.

A unit is `spec.unitReplicas` workers of consecutive indices, which hold one replica of the model.
With `scheduling.rankTopologyKey`, the units whose nodes have the same value of that label are a
*domain*, and have consecutive ranks.
"""

from collections.abc import Iterable, Mapping, Sequence

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.sizes import in_whole_units, largest_allowed


def choose_group(
    stay: Sequence[Candidate],
    joiners: Sequence[Candidate],
    wanted: int,
    allowed: Sequence[int],
    unit: int,
) -> list[Candidate]:
    """Returns the next group: units that have been in it first, those of newcomers only last.

    Args:
        stay: in the order of their ranks.
        joiners: by index; none has the index of another or of a member.
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
    if unit == 1:
        return frozenset()
    ready = [candidate for candidate in candidates if candidate.ready]
    whole = in_whole_units({candidate.index for candidate in ready}, unit)
    return frozenset(candidate.worker for candidate in ready if candidate.index not in whole)


def units_of(candidates: Sequence[Candidate], unit: int) -> list[list[Candidate]]:
    units: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        units.setdefault(candidate.index // unit, []).append(candidate)
    return list(units.values())


Unit = list[Candidate]


def domains_of(job: Job, observed: Observed) -> Mapping[str, str]:
    """By worker, where it is known."""
    if not (key := job.scheduling.rank_topology_key):
        return {}
    placed = (pod for pod in observed.pods if pod.node in observed.nodes)
    labels = {pod.name: observed.nodes[pod.node].labels for pod in placed}
    return {worker: labels_[key] for worker, labels_ in labels.items() if key in labels_}


def assign_ranks(
    before: Mapping[str, int],
    group: Sequence[Candidate],
    store_port: int,
    unit: int,
    domains: Mapping[str, str],
) -> list[Candidate]:
    """Puts a group in rank order: by domain, in it by unit, and in each unit by index.

    Domains are in the order of their lowest ranks in the round before. New ones follow by index,
    and units without a domain come last. A unit keeps its place if its domain still has it; the
    others of the domain fill the gaps by index. So the loss of a unit moves at most one other unit
    of each domain.

    The first unit changes its place with the second if the agent of rank 0 has not reported its
    next port yet: new processes of the others might reach the store that is about to end.

    Args:
        group: whole units in any order.
    """
    blocks = _blocks_of(group, before, unit, domains)
    ranked = _place(blocks, before, unit)
    first = ranked[0][0] if len(ranked) > 1 else None
    if first and before.get(first.worker) == 0 and first.agent.port == store_port:
        if len(blocks[0]) > 1:
            ranked[:2] = reversed(ranked[:2])
        else:
            blocks[:2] = reversed(blocks[:2])
            ranked = _place(blocks, before, unit)
    return [candidate for members in ranked for candidate in members]


def _blocks_of(
    group: Sequence[Candidate], before: Mapping[str, int], unit: int, domains: Mapping[str, str]
) -> list[list[Unit]]:
    units = [sorted(members, key=_position) for members in units_of(group, unit)]
    blocks: dict[str | None, list[Unit]] = {}
    for members in sorted(units, key=lambda members: _position(members[0])):
        blocks.setdefault(domains.get(members[0].worker), []).append(members)

    def order(domain: str | None) -> tuple[bool, int]:
        known = [
            rank
            for members in blocks[domain]
            for worker in members
            if (rank := before.get(worker.worker)) is not None
        ]
        return domain is None, min(known, default=len(before))

    return [blocks[domain] for domain in sorted(blocks, key=order)]


def _place(blocks: Iterable[Sequence[Unit]], before: Mapping[str, int], unit: int) -> list[Unit]:
    ranked: list[Unit] = []
    for block in blocks:
        places: list[Unit | None] = [None] * len(block)
        rest = []
        for members in block:
            ranks = (rank for worker in members if (rank := before.get(worker.worker)) is not None)
            place = next((rank // unit - len(ranked) for rank in ranks), -1)
            if 0 <= place < len(block) and places[place] is None:
                places[place] = members
            else:
                rest.append(members)
        others = iter(rest)
        ranked += [members if members is not None else next(others) for members in places]
    return ranked


def _position(candidate: Candidate) -> tuple[int, str]:
    return candidate.index, candidate.worker
