"""What happens when, drawn from a seed, and how much faster than in reality. Pure."""

import random
from dataclasses import dataclass

GPUS_PER_NODE = 8
EVENT_SECONDS = 26.0  # from one event to the next, on average: the slowest job needs about 20 s to train again
EARLY, LATE = 0.05, 0.35  # the part of its share of the time in which an event comes: the rest is to recover in
AWAY_SECONDS = (4.0, 7.0)
SET_UP_SECONDS = 300.0  # of a real script: weights, compilation, NCCL
NOTICE_SECONDS = 120.0  # of a real spot node: AWS's
CHECKPOINT_SECONDS = 1800.0  # between two of a real script that goes back to checkpoints
LOSS, RECLAIM = "loss", "reclaim"


@dataclass(frozen=True, slots=True)
class Trace:
    """What a real job lives through.

    Attributes:
        gpus: of the real job.
        interval_seconds: from one event to the next in reality, on average.
        goal: the effective training time ratio that jobs of the training library are to reach.
    """

    name: str
    title: str
    kind: str
    gpus: int
    interval_seconds: float
    goal: float

    @property
    def nodes(self) -> int:
        return self.gpus // GPUS_PER_NODE


TRACES = {
    trace.name: trace
    for trace in (
        Trace("spot", "Spot nodes: 64 GPUs, a node is reclaimed each hour", RECLAIM, 64, 3600.0, 0.97),
        # arXiv 2410.21680: 7.9 hours to a failure with 1,024 GPUs; failures are in proportion to the GPUs.
        Trace(
            "research", "A research cluster: 512 GPUs, a node fails each 15.8 hours", LOSS, 512, 7.9 * 3600 * 1024 / 512, 0.99
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Event:
    """A node goes, and comes back.

    Attributes:
        at: seconds since the job trains.
        kind: LOSS without notice, RECLAIM with it.
        pick: a random number, which chooses among the workers that there are at that time.
        away_seconds: until new pods can start on the node again.
    """

    at: float
    kind: str
    pick: int
    away_seconds: float


def draw(trace: Trace, seed: int, seconds: float) -> tuple[Event, ...]:
    """Draws the events of some seconds: one in each share of the time, as each needs time to recover in."""
    chance, count = random.Random(f"{trace.name} {seed}"), _count(seconds)
    return tuple(
        Event(
            round(seconds / count * (number + chance.uniform(EARLY, LATE)), 1),
            trace.kind,
            chance.randrange(1 << 16),
            round(chance.uniform(*AWAY_SECONDS), 1),
        )
        for number in range(count)
    )


def compression(trace: Trace, seconds: float) -> float:
    """How many times as often as in reality the events come."""
    return trace.interval_seconds / (seconds / _count(seconds))


def _count(seconds: float) -> int:
    return max(1, round(seconds / EVENT_SECONDS))
