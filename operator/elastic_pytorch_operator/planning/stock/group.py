"""The group of a job whose rendezvous is stock torchrun's, as far as the operator can see it: the worker pods that run.

Each change of it is reported as a round, as if the operator had declared it, so that the status and
events of all jobs are alike. Only torchrun knows the ranks, and when a new group really trains.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.known_workers import RUNNING, known_workers
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.spec.job import Job

START_SECONDS = 4.0  # between the starts of pods that were made together


@dataclass(frozen=True, slots=True)
class StockGroup:
    round: Round | None = None
    running: frozenset[str] = frozenset()
    since: float = 0.0  # since when no other worker runs


def adopt_group(job: Job, running: Sequence[PodView], now: float) -> StockGroup:
    """The group that an operator finds when it starts: as the status has it, so that a worker lost meanwhile is missed."""
    number, size = int(job.status.get("round", 0)), int(job.status.get("worldSize", 0))
    addresses = {pod.name: pod.address for pod in running}
    trained = [
        worker for worker in known_workers(job.status, running) if size and worker.state == RUNNING
    ]
    members = tuple(Member(w.name, w.index, addresses.get(w.name, "")) for w in trained)
    round_ = (
        Round(number, members, job.store_port, "", "taken over from the status", now)
        if number
        else None
    )
    return StockGroup(round_, frozenset(pod.name for pod in running), now)


def next_group(
    job: Job,
    target: Target,
    group: StockGroup,
    running: Sequence[PodView],
    reasons: Mapping[str, str],
    victims: Collection[str],
    now: float,
) -> tuple[StockGroup, float | None]:
    """Follows the group, and reports a change: a loss at once, newcomers when no more have come for a while.

    Args:
        reasons: why workers are gone or go, by name.
        victims: those that the operator has deleted because they were too many.

    Returns:
        The group, with a new round if there is one; and when to look again.
    """
    there = frozenset(pod.name for pod in running)
    if there != group.running:
        group = replace(group, running=there, since=now)
    before = group.round.ranks if group.round else {}
    members = _members(running) if len(running) >= job.minimum else ()
    if {member.worker for member in members} == before.keys():
        return group, None
    gone = [worker for worker in before if worker not in there]
    settled_at = group.since + job.settle_seconds + START_SECONDS
    if not gone and len(members) < target.size and now < settled_at:
        return group, settled_at
    joined = [member.worker for member in members if member.worker not in before]
    if not members:
        reason = names.JOB_SUSPENDED if target.stopped else names.BELOW_MINIMUM
        cause = f"{len(running)} workers run, training needs {job.minimum}"
    elif not before:
        reason, cause = names.FIRST_ROUND, f"{len(members)} workers run"
    elif gone and all(worker in victims for worker in gone):
        reason, cause = names.SCALED_DOWN, f"{', '.join(gone)} left"
    elif gone:
        reason, cause = (
            names.WORKER_LOST,
            "; ".join(f"{w} {reasons.get(w) or 'is gone'}" for w in gone),
        )
    else:
        reason, cause = names.WORKER_JOINED, f"{', '.join(joined)} joined"
    number = max(group.round.number if group.round else 0, int(job.status.get("round", 0))) + 1
    return replace(group, round=Round(number, members, job.store_port, reason, cause, now)), None


def _members(running: Sequence[PodView]) -> tuple[Member, ...]:
    pods = sorted(running, key=lambda pod: (pod.index, pod.name))
    return tuple(Member(pod.name, pod.index, pod.address) for pod in pods)


@dataclass(frozen=True, slots=True)
class StockMemory:
    """A stock rendezvous from one plan to the next; all of it can be lost without harm to the job."""

    rendezvous: int  # the number of the one that the rest is about
    since: float
    disturbed: bool  # workers of it have been lost, or may have been before this operator was there
    group: StockGroup
    victims: frozenset[str] = field(default_factory=frozenset)  # deleted because they were too many
    in_a_row: int = 0  # how many before it were over soon
    over_since: float | None = None
    understood: bool = False  # why it is over has been found out, and counted
    backoff_until: float = 0.0
