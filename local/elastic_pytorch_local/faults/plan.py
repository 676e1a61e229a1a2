"""Which faults are made when, drawn from a seed.

Pure: the same seed, length and kinds give the same plan.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

PAIRS = 0.35  # the part of the acts that are two faults at once
# From the end of one act to the next: some come while the last one is being recovered from.
PAUSE_SECONDS = (3.0, 20.0)
UNDO_SECONDS = 5.0  # that an act takes besides its faults, about


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    family: str  # what it is done to: two faults at once are of two families
    title: str
    seconds: tuple[float, float] = (0.0, 0.0)  # at least and at most; 0: nothing is undone
    loses: bool = False  # workers end, or cannot be reached, without notice
    # The operator or API server may be away: what was planned may become a loss.
    unsettles: bool = False
    # Workers may train on that cannot be reached, beside a group made without them.
    isolates: bool = False
    job: str = ""  # the only one that it is made to; empty: any


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    pick: int  # a random number, which chooses among the targets of that time
    seconds: float  # until it is undone


@dataclass(frozen=True, slots=True)
class Act:
    """One fault, or two at once, after a pause."""

    pause_seconds: float
    faults: tuple[Fault, ...]


def draw(
    seed: int, seconds: float, kinds: Sequence[Kind], longest_seconds: float = 90.0
) -> tuple[Act, ...]:
    """Draws acts that take about a time in all.

    Each kind comes once before one comes twice, and no fault lasts longest_seconds.
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
