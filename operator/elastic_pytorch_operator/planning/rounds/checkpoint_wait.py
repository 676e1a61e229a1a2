"""`resizePolicy.checkpointWaitSeconds`: a change of the group that can wait does so until the script has just written a checkpoint.

A script that knows nothing of this project loses, at each change, what it has trained since its
last checkpoint. Losses and failures do not wait: their group has stopped already.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.spec.job import Job

CANNOT_WAIT = (names.WORKER_FAILED, names.WORKER_LOST)
# How long a leaving worker trains on after any wait, until the round without it is declared.
LEAVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CheckpointWait:
    round: int  # that trains on meanwhile
    since: float  # when its change was first wanted
    # By worker, how many checkpoints its agent had seen at its first report in this wait.
    counts: Mapping[str, int] = field(default_factory=dict)
    leaving_since: float | None = None  # when the first member that has to go was seen to leave


class WaitEndReason(Enum):
    CHECKPOINT = auto()
    TOO_LONG = auto()
    UNWATCHED = auto()  # no agent can see checkpoints
    URGENT = auto()  # the group is to change in a way that cannot wait
    MEMBER_FAILED = auto()
    NO_CHANGE = auto()


@dataclass(frozen=True, slots=True)
class WaitEnd:
    reason: WaitEndReason
    seconds: float
    # The worker that has seen the checkpoint or has failed, or the cause of the change that cannot
    # wait.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Deferral:
    wait: CheckpointWait | None = None
    until: float | None = None  # the change waits, but not longer; None: it need not
    change: Round | None = None  # the round that would be declared if it did not wait
    seconds: float = 0.0  # the longest that it waits, from when it was first wanted
    over: WaitEnd | None = None  # the wait that has ended just now


NO_DEFERRAL = Deferral()


def defer_for_checkpoint(
    job: Job,
    observed: Observed,
    wanted: Round | None,
    known: CheckpointWait | None,
    leave_by: float = math.inf,
) -> Deferral:
    """Decides whether a change of the group is to wait for a checkpoint.

    Args:
        wanted: the round that would be declared now.
        leave_by: when workers that leave now have to have left.
    """
    current = observed.round
    if known is not None and (current is None or current.number != known.round):
        known = None

    def end(reason: WaitEndReason, detail: str = "") -> Deferral:
        return (
            Deferral(over=WaitEnd(reason, observed.now - known.since, detail))
            if known
            else NO_DEFERRAL
        )

    if wanted is None or current is None:
        failed = _failed_member(observed)
        return end(WaitEndReason.MEMBER_FAILED, failed) if failed else end(WaitEndReason.NO_CHANGE)
    if not job.checkpoint_wait_seconds or not can_wait(current, wanted):
        return end(WaitEndReason.URGENT, wanted.cause)
    counts = {
        worker: agent.progress.checkpoints
        for worker in current.ranks
        if (agent := observed.agents.get(worker)) and agent.progress.checkpoints is not None
    }
    wait = known or CheckpointWait(current.number, observed.now)
    if wait.leaving_since is None and _any_leaves(current, observed):
        wait = replace(wait, leaving_since=observed.now)
    until = min(wait.since + job.checkpoint_wait_seconds, leave_by)
    if wait.leaving_since is not None:
        until = min(until, wait.leaving_since + leaving_wait_seconds(job))
    seen = [worker for worker, count in counts.items() if count > wait.counts.get(worker, count)]
    if seen:
        return end(WaitEndReason.CHECKPOINT, seen[0])
    if observed.now >= until:
        return end(WaitEndReason.TOO_LONG)
    if not counts:
        return end(WaitEndReason.UNWATCHED)
    wait = replace(wait, counts={**counts, **wait.counts})
    return Deferral(wait, until, wanted, round(until - wait.since, 1))


def can_wait(current: Round, wanted: Round) -> bool:
    """Whether the members of a round can train on although the next one is known: there are some, and none is lost or has failed."""
    return (
        current.size > 0
        and wanted.orderly_since <= current.number
        and wanted.reason not in CANNOT_WAIT
    )


def leaving_wait_seconds(job: Job) -> float:
    """How long a change may wait while a pod of the round is being deleted: half of its grace period is left to save and to end."""
    return max(0.0, min(job.checkpoint_wait_seconds, job.grace_seconds / 2 - LEAVE_SECONDS))


def leave_seconds(job: Job) -> float:
    """How long the workers of a pod that is being deleted train on unless a round without it is declared before."""
    return LEAVE_SECONDS + leaving_wait_seconds(job)


def _any_leaves(current: Round, observed: Observed) -> bool:
    going = {pod.name for pod in observed.pods if pod.deleting}
    going |= {
        agent.worker for agent in observed.agents.values() if agent.state is AgentState.LEAVING
    }
    return not going.isdisjoint(current.ranks)


def _failed_member(observed: Observed) -> str | None:
    number = observed.round.number if observed.round else 0
    failed = (
        a.worker
        for a in observed.agents.values()
        if a.round == number and a.state is AgentState.FAILED
    )
    return next(failed, None)
