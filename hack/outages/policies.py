"""A job's progress while its nodes go and come back, under a policy. Pure.

A job trains on all nodes that are up and that it wants, a fixed one only on all that it wants. At
each change of its group it stands still, and after a loss it may repeat the steps since its last
checkpoint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from outages.recorded import DAYS, Server

DAY_SECONDS = 86_400
# A second, and how many of a job's nodes are up from then on; the last entry ends the year.
Course = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Training:
    """The assumptions for all policies.

    Attributes:
        set_up_seconds: from the script's start to its first step: weights, compilation.
        checkpoint_seconds: between two checkpoints on disk.
        connect_seconds: for the GPUs of a new group, beside what was measured on CPUs.
        smaller: the speed of a smaller group, as a share of that in proportion to its nodes.
        fewest: the smallest group, as a share of all nodes.
    """

    set_up_seconds: float = 300.0
    checkpoint_seconds: float = 1800.0
    step_seconds: float = 5.0
    connect_seconds: float = 4.0
    smaller: float = 0.9
    fewest: float = 0.5


@dataclass(frozen=True, slots=True)
class Policy:
    """How a job handles the loss of a node.

    Attributes:
        loss_seconds: a pause after the loss of a node.
        growth_seconds: a pause when a node joins a smaller group.
        on_cpus: these seconds were measured on CPUs, with a script without a set-up.
        set_up: the script starts again at each change of the group.
        repeats: a loss repeats the steps since the last checkpoint; otherwise one step.
        saving: the share of the time that saves take.
        elastic: a smaller group trains on; otherwise it waits.
    """

    title: str
    loss_seconds: float
    growth_seconds: float = 0.0
    on_cpus: bool = False
    set_up: bool = False
    repeats: bool = False
    saving: float = 0.0
    elastic: bool = False


def course(servers: Iterable[Server]) -> Course:
    held = list(servers)
    changes = [(begin, -1) for server in held for begin, _ in server]
    changes += [(end, 1) for server in held for _, end in server]
    up, found = len(held), [(0.0, len(held))]
    for day, change in sorted(changes):
        up += change
        found.append((day * DAY_SECONDS, up))
    return [*found, (DAYS * DAY_SECONDS, up)]


def trained_share(
    nodes: int, held: int, times: Course, policy: Policy, training: Training
) -> float:
    """The share of the hours of all `held` nodes, with the spares, in which `nodes` trained.

    Where more nodes are up than train, a loss counts with the chance that it hits the group.
    """

    def size(up: int) -> int:
        fewest = training.fewest * nodes if policy.elastic else nodes
        return min(up, nodes) if up >= fewest else 0

    def speed(up: int) -> float:
        return size(up) * (1.0 if size(up) == nodes else training.smaller)

    still = _extra(policy, training)
    progress = since_start = pause = 0.0
    for (begin, up), (end, after) in pairwise(times):
        trains = max(0.0, end - begin - pause)
        pause = max(0.0, pause - (end - begin))
        if size(up):
            progress += trains * speed(up)
            since_start += trains
        hit = 1 - (1 - size(up) / up) ** (up - after) if up > after else 0.0
        if hit:
            again = training.step_seconds
            if policy.repeats:
                again = since_start % training.checkpoint_seconds
            progress -= hit * min(again, since_start) * speed(up)
            pause = max(pause, hit * (policy.loss_seconds + still))
            since_start *= 1 - hit
        elif size(after) > size(up):
            waited = size(up) == 0
            pause = max(pause, (policy.loss_seconds if waited else policy.growth_seconds) + still)
            since_start = 0.0
    return progress * (1 - policy.saving) / (held * times[-1][0])


def _extra(policy: Policy, training: Training) -> float:
    """What a real training adds to a pause that was measured without a model."""
    set_up = training.set_up_seconds if policy.set_up else 0.0
    return set_up + (training.connect_seconds if policy.on_cpus else 0.0)
