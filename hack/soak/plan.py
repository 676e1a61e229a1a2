"""The kinds of faults, and when a soak makes which. Pure: equal arguments give equal acts."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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


lost = partial(Kind, loses=True)
away = partial(Kind, unsettles=True)
cut_off = partial(Kind, loses=True, unsettles=True, isolates=True)
of_bucket = partial(Kind, job="bucket")
KINDS = {
    kind.name: kind
    for kind in (
        lost("kill-process", "worker", "a training process is killed"),
        lost("kill-container", "worker", "a training container is killed"),
        Kind("delete-pod", "worker", "a worker's pod is deleted"),
        lost("delete-pod-now", "worker", "a worker's pod is deleted without grace"),
        Kind("scale", "size", "a job is scaled"),
        Kind("drain", "node", "a node is drained", (5, 30)),
        Kind("cordon", "node", "a node is cordoned", (5, 30)),
        lost("kill-node", "node", "a node dies, and comes back", (5, 40), unsettles=True),
        cut_off("pause-node", "node", "a node freezes, and goes on", (2, 40)),
        cut_off("cut-node", "node", "a node is cut off, and reached again", (2, 40)),
        away("kill-leader", "operator", "the leading operator is killed"),
        away("kill-operators", "operator", "all operators are killed"),
        away("roll-operator", "operator", "the operator's Deployment is rolled over"),
        away("rotate-certificate", "operator", "the operator's certificate is made again"),
        away("freeze-api", "control plane", "the API server does not answer", (5, 90)),
        away("kill-api", "control plane", "the API server is killed"),
        away("slow-etcd", "control plane", "etcd stops for half of each second", (10, 40)),
        Kind("stop-dns", "control plane", "the cluster's DNS has no servers", (10, 40)),
        Kind("refuse-writes", "storage", "the checkpoint folder refuses writes", (5, 30)),
        Kind("remove-image", "image", "a node loses the workers' image", (5, 30)),
        of_bucket("kill-job", "worker", "all containers of the job are killed at once", loses=True),
        of_bucket("refuse-requests", "storage", "the bucket's server answers 503", (5, 30)),
        of_bucket("cut-connections", "storage", "the bucket's server cuts connections", (5, 30)),
        of_bucket("pause-server", "storage", "the bucket's server freezes, and goes on", (5, 30)),
    )
}

# Not part of a plan: a sort of job is suspended and resumed all the time.
SUSPEND = Kind("suspend", "size", "a job is suspended and resumed")

SETTLED = tuple(kind.name for kind in KINDS.values() if not kind.unsettles)


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


def from_json(acts: Sequence[dict[str, Any]]) -> tuple[Act, ...]:
    return tuple(
        Act(act["pause_seconds"], tuple(Fault(**fault) for fault in act["faults"])) for act in acts
    )
