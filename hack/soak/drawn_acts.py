"""Faults and their times, drawn from a seed. Pure: equal arguments give equal plans."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

PAIRS = 0.35  # the share of acts with two faults at once
PAUSE_SECONDS = (3.0, 20.0)  # between two acts: some come during a recovery
UNDO_SECONDS = 5.0  # of an act besides its faults, about


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    family: str  # the kind of target: two faults at once are of two families
    title: str
    seconds: tuple[float, float] = (0.0, 0.0)  # at least and at most; 0: nothing is undone
    loses: bool = False  # workers end, or cannot be reached, without notice
    unsettles: bool = False  # without operator or API server, a planned change may become a loss
    isolates: bool = False  # unreachable workers may train beside a group made without them
    job: str = ""  # its only target; empty: any


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    pick: int  # a random number that chooses a target
    seconds: float  # until the undo


@dataclass(frozen=True, slots=True)
class Act:
    pause_seconds: float
    faults: tuple[Fault, ...]


def draw(
    seed: int, seconds: float, kinds: Sequence[Kind], longest_seconds: float
) -> tuple[Act, ...]:
    """Draws acts of about some seconds in all, with faults of less than longest_seconds.

    Each kind comes once before one comes twice.
    """
    chance = random.Random(seed)
    acts: list[Act] = []
    waiting: list[Kind] = []
    while seconds > 0:
        pair = chance.random() < PAIRS
        chosen: list[Kind] = []
        while len(chosen) < 1 + pair:
            if not waiting:
                waiting = chance.sample(list(kinds), len(kinds))
            other = [kind for kind in waiting if not chosen or kind.family != chosen[0].family]
            if not other:
                break
            waiting.remove(other[0])
            chosen.append(other[0])
        faults = tuple(_fault(chance, kind, longest_seconds) for kind in chosen)
        acts.append(Act(round(chance.uniform(*PAUSE_SECONDS), 1), faults))
        seconds -= acts[-1].pause_seconds + max(fault.seconds for fault in faults) + UNDO_SECONDS
    return tuple(acts)


def _fault(chance: random.Random, kind: Kind, longest_seconds: float) -> Fault:
    lasts = min(longest_seconds, chance.uniform(*kind.seconds))
    return Fault(kind.name, chance.randrange(1 << 16), round(lasts, 1))


def to_json(acts: Sequence[Act]) -> list[dict[str, Any]]:
    return [asdict(act) for act in acts]


def from_json(acts: Sequence[dict[str, Any]]) -> tuple[Act, ...]:
    return tuple(
        Act(act["pause_seconds"], tuple(Fault(**fault) for fault in act["faults"])) for act in acts
    )
