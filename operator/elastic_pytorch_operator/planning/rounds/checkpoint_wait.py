"""`resizePolicy.checkpointWaitSeconds`: a change of the group waits for the next checkpoint.

At each change, a script that does not use the library loses what it has trained since its last
checkpoint. Losses and failures do not wait: their group has stopped already.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.failure import failed_members
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.spec.job import Job

CANNOT_WAIT = (names.WORKER_FAILED, names.WORKER_LOST)
LEAVE_SECONDS = 2.0  # a leaving worker trains on after a wait, until the round without it


@dataclass(frozen=True, slots=True)
class CheckpointWait:
    round: int  # it trains on meanwhile
    since: float  # the change was first wanted then
    # By worker: the checkpoints that its agent had seen at its first report in this wait.
    counts: Mapping[str, int] = field(default_factory=dict)
    leaving_since: float | None = None  # the first member that has to go was seen to leave


@dataclass(frozen=True, slots=True)
class Deferral:
    wait: CheckpointWait | None = None
    until: float | None = None  # the longest that the change waits; None: it need not
    waits: str = ""  # which change, and how long, for people; empty: none does
    over: str = ""  # how a wait has ended, for people; empty: none has


def defer_for_checkpoint(
    job: Job,
    observed: Observed,
    wanted: Round | None,
    known: CheckpointWait | None,
    leave_by: float = math.inf,
) -> Deferral:
    """Whether the `wanted` round waits for a checkpoint; leaving workers have until `leave_by`."""
    current, where = observed.round, f"checkpoint in {job.checkpoint_path}"
    if known is not None and (current is None or current.number != known.round):
        known = None

    def end(how: str) -> Deferral:
        if known is None:
            return Deferral()
        return Deferral(over=f"After {observed.now - known.since:.1f} s{how}")

    if wanted is None or current is None:
        if failed := failed_members(observed):
            return end(f": the workers of {failed[0].worker} have failed")
        return end(": the group no longer needs to change")
    orderly = current.size > 0 and wanted.orderly_since <= current.number
    if not (job.checkpoint_wait_seconds and orderly) or wanted.reason in CANNOT_WAIT:
        return end(f": the change cannot wait, {wanted.cause}")
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
        return end(f": {seen[0]} has seen a new {where}")
    if observed.now >= until:
        return end(f" without a new {where}")
    if not counts:
        return end(f": no agent can watch for a {where}")
    wait = replace(wait, counts={**counts, **wait.counts})
    longest = f"up to {round(until - wait.since, 1):g} s for the next {where}"
    return Deferral(wait, until, f"{wanted.cause}; waits {longest}")


def leaving_wait_seconds(job: Job) -> float:
    """Half of the grace period of a pod that is being deleted is left to save and to end."""
    return max(0.0, min(job.checkpoint_wait_seconds, job.grace_seconds / 2 - LEAVE_SECONDS))


def leave_seconds(job: Job) -> float:
    return LEAVE_SECONDS + leaving_wait_seconds(job)


def _any_leaves(current: Round, observed: Observed) -> bool:
    going = {pod.name for pod in observed.pods if pod.deleting}
    going |= {a.worker for a in observed.agents.values() if a.state is AgentState.LEAVING}
    return not going.isdisjoint(current.ranks)
