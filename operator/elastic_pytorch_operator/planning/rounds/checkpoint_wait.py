"""`resizePolicy.checkpointWaitSeconds`: a change of the group that can wait does so until the script has just written a checkpoint.

A script that knows nothing of this project loses, at each change, what it has trained since its last checkpoint. Losses and failures do
not wait: their group has stopped already.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.spec.job import Job

CANNOT_WAIT = (names.WORKER_FAILED, names.WORKER_LOST)
LEAVE_SECONDS = 2.0  # how long a leaving worker trains on after any wait, until the round without it is declared


@dataclass(frozen=True, slots=True)
class CheckpointWait:
    """A wait that is going on.

    Attributes:
        round: the one that trains on meanwhile.
        since: when its change was first wanted, monotonic seconds.
        counts: by worker, how many checkpoints its agent had seen at its first report in this wait.
        leaving_since: when the first member that has to go was seen to leave; None: none leaves.
    """

    round: int
    since: float
    counts: Mapping[str, int] = field(default_factory=dict)
    leaving_since: float | None = None


@dataclass(frozen=True, slots=True)
class Deferral:
    """Whether a change of the group is deferred.

    Attributes:
        wait: what to remember.
        until: the change waits, but not longer than this, monotonic seconds; None: it need not wait.
        text: for people: what is to change, and what it waits for; empty: it does not wait.
        over: for people: why a wait has ended just now; empty: none has.
    """

    wait: CheckpointWait | None = None
    until: float | None = None
    text: str = ""
    over: str = ""


def defer_for_checkpoint(
    job: Job, observed: Observed, wanted: Round | None, known: CheckpointWait | None, leave_by: float = math.inf
) -> Deferral:
    """Decides whether a change of the group is to wait for a checkpoint.

    Args:
        job: says how long a change may wait, and which folder its agents watch.
        observed: what the agents have reported.
        wanted: the round that would be declared now; None: nothing is to change, or not yet.
        known: the wait that was going on.
        leave_by: when workers that leave now have to have left, monotonic seconds.
    """
    current = observed.round
    if known is not None and (current is None or current.number != known.round):
        known = None
    since = known.since if known else observed.now
    after = f"After {observed.now - since:.1f} s"
    if wanted is None or current is None:
        return Deferral(over=f"{after}: {_why_nothing_changes(observed)}" if known else "")
    if not job.checkpoint_wait_seconds or not can_wait(current, wanted):
        return Deferral(over=f"{after}: the change cannot wait, {wanted.cause}" if known else "")
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
    where = f"checkpoint in {job.checkpoint_path}"
    seen = [worker for worker, count in counts.items() if count > wait.counts.get(worker, count)]
    if seen:
        return Deferral(over=f"{after}: {seen[0]} has seen a new {where}")
    if observed.now >= until:
        return Deferral(over=f"{after} without a new {where}" if known else "")
    if not counts:
        return Deferral(over=f"{after}: no agent can watch for a {where}" if known else "")
    wait = replace(wait, counts={**counts, **wait.counts})
    return Deferral(wait, until, f"{wanted.cause}; waits up to {round(until - wait.since, 1):g} s for the next {where}")


def can_wait(current: Round, wanted: Round) -> bool:
    """Whether the members of a round can train on although the next one is known: there are some, and none is lost or has failed."""
    return current.size > 0 and wanted.orderly_since <= current.number and wanted.reason not in CANNOT_WAIT


def leaving_wait_seconds(job: Job) -> float:
    """How long a change may wait while a pod of the round is being deleted: half of its grace period is left to save and to end."""
    return max(0.0, min(job.checkpoint_wait_seconds, job.grace_seconds / 2 - LEAVE_SECONDS))


def leave_seconds(job: Job) -> float:
    """How long the workers of a pod that is being deleted train on unless a round without it is declared before."""
    return LEAVE_SECONDS + leaving_wait_seconds(job)


def _any_leaves(current: Round, observed: Observed) -> bool:
    going = {pod.name for pod in observed.pods if pod.deleting}
    going |= {agent.worker for agent in observed.agents.values() if agent.state is AgentState.LEAVING}
    return not going.isdisjoint(current.ranks)


def _why_nothing_changes(observed: Observed) -> str:
    number = observed.round.number if observed.round else 0
    for agent in observed.agents.values():
        if agent.round == number and agent.state is AgentState.FAILED:
            return f"the workers of {agent.worker} have failed"
    return "the group is to stay as it is"
