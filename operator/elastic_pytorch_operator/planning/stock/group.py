"""The group of a job with stock torchrun, as far as the operator sees it: the pods that run.

Each change is reported as a round, as if the operator had declared it, so that the status and
events of all jobs are alike.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.known_workers import known_workers
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.spec.job import Job

START_SECONDS = 4.0  # between the starts of pods that were made together


@dataclass(frozen=True, slots=True)
class StockGroup:
    round: Round | None = None
    running: frozenset[str] = frozenset()
    since: float = 0.0  # the same workers have run since then


def adopt_group(job: Job, running: Sequence[PodView], now: float) -> StockGroup:
    """From the status, so that a starting operator misses workers lost meanwhile."""
    number, size = int(job.status.get("round", 0)), int(job.status.get("worldSize", 0))
    addresses = {pod.name: pod.address for pod in running}
    known = known_workers(job.status, running) if size else ()
    trained = (worker for worker in known if worker.state == names.RUNNING)
    members = tuple(Member(w.name, addresses.get(w.name, "")) for w in trained)
    round_ = Round(number, members, job.store_port, "", "taken over from the status", now)
    there = frozenset(pod.name for pod in running)
    return StockGroup(round_ if number else None, there, now)


def next_group(
    job: Job,
    target: Target,
    group: StockGroup,
    running: Sequence[PodView],
    reasons: Mapping[str, str],
    victims: Collection[str],
    now: float,
) -> tuple[StockGroup, float | None]:
    """Returns the group, with a new round if there is one, and when to look again.

    Args:
        reasons: why workers go, by name.
        victims: surplus workers that the operator has deleted.
    """
    there = frozenset(pod.name for pod in running)
    if there != group.running:
        group = replace(group, running=there, since=now)
    before = group.round.ranks if group.round else {}
    pods = sorted(running, key=lambda pod: (pod.index, pod.name))
    members = tuple(Member(pod.name, pod.address) for pod in pods)
    if len(members) < job.minimum:
        members = ()
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
        reason = names.WORKER_LOST
        cause = "; ".join(f"{w} {reasons.get(w) or 'is gone'}" for w in gone)
    else:
        reason, cause = names.WORKER_JOINED, f"{', '.join(joined)} joined"
    number = max(group.round.number if group.round else 0, int(job.status.get("round", 0))) + 1
    return replace(group, round=Round(number, members, job.store_port, reason, cause, now)), None


@dataclass(frozen=True, slots=True)
class StockMemory:
    rendezvous: int  # the number
    since: float
    disturbed: bool  # it has lost workers, perhaps before this operator began
    group: StockGroup
    in_a_row: int = 0  # rendezvous before it that were soon over
    over_since: float | None = None
    understood: bool = False  # the cause of its end is known, and counted
    backoff_until: float = 0.0
