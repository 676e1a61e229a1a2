"""Which faults happen when, drawn from a seed. Pure: the same seed and length give the same plan."""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PAIRS = 0.35  # the part of the acts that are two faults at once
PAUSE_SECONDS = (3.0, 20.0)  # from the end of one act to the next: some come while the last one is being recovered from
UNDO_SECONDS = 5.0  # that an act takes besides its faults, about


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: of the kind.
        family: what it is done to. Two faults at once are of two families.
        title: what happens, for people.
        seconds: for how long, at least and at most; 0: nothing is undone.
        loses: whether workers end, or cannot be reached, without notice.
        unsettles: whether the operator or the API server may be away, so that even what was planned may become a loss.
        isolates: whether workers that cannot be reached may train on, beside a group that was made without them.
        job: the only job that it is made to; empty: any.
    """

    name: str
    family: str
    title: str
    seconds: tuple[float, float] = (0.0, 0.0)
    loses: bool = False
    unsettles: bool = False
    isolates: bool = False
    job: str = ""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill-process", "worker", "a training process is killed", loses=True),
        Kind("kill-container", "worker", "a training container is killed", loses=True),
        Kind("delete-pod", "worker", "a worker's pod is deleted"),
        Kind("delete-pod-now", "worker", "a worker's pod is deleted without grace", loses=True),
        Kind("scale", "size", "a job is scaled"),
        Kind("drain", "node", "a node is drained", (5, 30)),
        Kind("cordon", "node", "a node is cordoned", (5, 30)),
        Kind("kill-node", "node", "a node dies, and comes back", (5, 40), loses=True, unsettles=True),
        Kind("pause-node", "node", "a node freezes, and goes on", (2, 40), loses=True, unsettles=True, isolates=True),
        Kind("cut-node", "node", "a node is cut off, and reached again", (2, 40), loses=True, unsettles=True, isolates=True),
        Kind("kill-leader", "operator", "the leading operator is killed", unsettles=True),
        Kind("kill-operators", "operator", "all operators are killed", unsettles=True),
        Kind("roll-operator", "operator", "the operator's Deployment is rolled over", unsettles=True),
        Kind("rotate-certificate", "operator", "the operator's certificate is made again", unsettles=True),
        Kind("freeze-api", "control plane", "the API server does not answer", (5, 90), unsettles=True),
        Kind("kill-api", "control plane", "the API server is killed", unsettles=True),
        Kind("slow-etcd", "control plane", "etcd stops for half of each second", (10, 40), unsettles=True),
        Kind("stop-dns", "control plane", "the cluster's DNS has no servers", (10, 40)),
        Kind("refuse-writes", "storage", "the checkpoint folder refuses writes", (5, 30)),
        Kind("remove-image", "image", "a node loses the workers' image", (5, 30)),
        Kind("kill-job", "worker", "all containers of the job are killed at once", loses=True, job="bucket"),
        Kind("refuse-requests", "storage", "the bucket's server answers 503", (5, 30), job="bucket"),
        Kind("cut-connections", "storage", "the bucket's server cuts connections", (5, 30), job="bucket"),
        Kind("pause-server", "storage", "the bucket's server freezes, and goes on", (5, 30), job="bucket"),
    )
}

# Those that leave the operator and the API server alone: the operator has no reason to start again meanwhile.
SETTLED = tuple(kind.name for kind in KINDS.values() if not kind.unsettles)


def made_to(jobs: Collection[str], kinds: Iterable[str] = KINDS) -> list[str]:
    """The kinds that can be made to some jobs. Without the job `bucket`, they are those of before there was one, and so are the plans."""
    return [kind for kind in kinds if not KINDS[kind].job or KINDS[kind].job in jobs]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the plan.

    Attributes:
        kind: a name of KINDS.
        pick: a random number, which chooses among the targets that there are at that time.
        seconds: until it is undone.
    """

    kind: str
    pick: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Act:
    """One fault, or two at once, after a pause."""

    pause_seconds: float
    faults: tuple[Fault, ...]


def draw(seed: int, seconds: float, kinds: Sequence[str] = tuple(KINDS), longest_seconds: float = 90.0) -> tuple[Act, ...]:
    """Draws acts that take about a time in all. Each kind comes once before one comes twice.

    Args:
        seed: of all that is random.
        seconds: for how long faults are to be made.
        kinds: names of KINDS, each once.
        longest_seconds: no fault lasts longer.
    """
    chance = random.Random(seed)
    acts: list[Act] = []
    waiting: list[str] = []
    while seconds > 0:
        pair = chance.random() < PAIRS
        chosen: list[str] = []
        while len(chosen) < 1 + pair:
            if not waiting:
                waiting = chance.sample(list(kinds), len(kinds))
            other = [kind for kind in waiting if not chosen or KINDS[kind].family != KINDS[chosen[0]].family]
            if not other:
                break
            waiting.remove(other[0])
            chosen.append(other[0])
        faults = tuple(_fault(chance, KINDS[kind], longest_seconds) for kind in chosen)
        acts.append(Act(round(chance.uniform(*PAUSE_SECONDS), 1), faults))
        seconds -= acts[-1].pause_seconds + max(fault.seconds for fault in faults) + UNDO_SECONDS
    return tuple(acts)


def _fault(chance: random.Random, kind: Kind, longest_seconds: float) -> Fault:
    lasts = min(longest_seconds, chance.uniform(*kind.seconds))
    return Fault(kind.name, chance.randrange(1 << 16), round(lasts, 1))


def to_json(acts: Sequence[Act]) -> list[dict[str, Any]]:
    """The plan as a report keeps it."""
    return [asdict(act) for act in acts]


def from_json(acts: Sequence[dict[str, Any]]) -> tuple[Act, ...]:
    """The plan of an earlier run, from its report."""
    return tuple(Act(act["pause_seconds"], tuple(Fault(**fault) for fault in act["faults"])) for act in acts)
