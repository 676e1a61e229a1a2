"""A job's progress while its nodes go and come back, under a policy. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from outages.recorded import DAYS, Server

DAY_SECONDS = 86_400
# A second, and how many of a job's nodes are up from then on; the last entry ends the year.
Course = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Training:
    set_up_seconds: float = 300.0  # of a script, until its first step: weights, compilation
    checkpoint_seconds: float = 1800.0  # between two checkpoints on disk
    step_seconds: float = 5.0
    connect_seconds: float = 4.0  # for the GPUs of a new group, beside what was measured on CPUs
    smaller: float = 0.9  # the speed of a smaller group, as a share of its nodes'
    fewest: float = 0.5  # nodes of the smallest group, as a share of all


@dataclass(frozen=True, slots=True)
class Policy:
    title: str
    loss_seconds: float  # the pause after the loss of a node
    growth_seconds: float = 0.0  # the pause when a node joins a smaller group
    on_cpus: bool = False  # where these seconds were measured, with a script without a set-up
    set_up: bool = False  # the script starts again at each change of the group
    repeats: bool = False  # a loss repeats the steps since the last checkpoint, or else one
    saving: float = 0.0  # the share of the time that saves take
    elastic: bool = False  # a smaller group trains on, or else it waits


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

    still = training.connect_seconds if policy.on_cpus else 0.0
    still += training.set_up_seconds if policy.set_up else 0.0
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
