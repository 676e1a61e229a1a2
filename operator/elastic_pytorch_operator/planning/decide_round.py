"""Which round a group has next, and what is to be remembered of that decision."""

from dataclasses import dataclass, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.judge_group import Judgement
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.reporting.interruption import advance_interruption, begin_interruption
from elastic_pytorch_operator.planning.reporting.quota_conditions import explain_eviction, explain_lack
from elastic_pytorch_operator.planning.reporting.stragglers import NO_STRAGGLERS, advance_stragglers
from elastic_pytorch_operator.planning.reporting.waits import explain_restart
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import Deferral, defer_for_checkpoint
from elastic_pytorch_operator.planning.rounds.growth import grows, may_grow_at
from elastic_pytorch_operator.planning.rounds.next_round import Cause, Decision, GroupState, next_round
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.liveness import Liveness
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What is to happen to a group now.

    Attributes:
        decision: which round is declared, if one is.
        deferral: whether its change waits for a checkpoint.
        grown: the round makes the group larger.
        memory: with what follows from the decision.
    """

    decision: Decision
    deferral: Deferral
    grown: bool
    memory: Memory


def decide_round(job: Job, target: Target, observed: Observed, judged: Judgement) -> GroupChange:
    """Decides on the next round of a job that has been judged.

    Args:
        job: with its policies.
        target: how many workers it is to have.
        observed: what is known.
        judged: how it stands. While it ends, or its whole group is to be replaced, it has no further round.
    """
    memory, candidates = judged.memory, judged.workers.candidates
    frozen = judged.ending is not None or judged.restarting.asked
    decision = Decision() if frozen else _next_round(job, target, observed, judged)
    leave_by = judged.workers.evacuation.leave_by
    deferral = defer_for_checkpoint(job, observed, decision.round, memory.checkpoint_wait, leave_by)
    if deferral.until is not None:
        decision = Decision(recheck_at=earliest(deferral.until, *(candidate.recheck_at for candidate in candidates)))
    gone = {candidate.worker for candidate in candidates if candidate.liveness is Liveness.GONE}
    interruption = advance_interruption(memory.interruption, observed.round, observed.agents.values(), observed.time, gone)
    if decision.round is not None:
        told_step = (job.status.get("progress") or {}).get("step")
        interruption = begin_interruption(
            observed.round, decision.round, observed, interruption, told_step=told_step, unled_step=memory.unled_step
        )
    ended = judged.ending is not None
    grown = grows(observed.round, decision.round)
    memory = replace(
        memory,
        interruption=interruption,
        unled_step=memory.unled_step if observed.round is None and decision.round is None else None,
        checkpoint_wait=deferral.wait,
        grown_at=observed.now if grown else memory.grown_at,
        stragglers=NO_STRAGGLERS
        if ended
        else advance_stragglers(memory.stragglers, decision.round or observed.round, observed),
    )
    return GroupChange(decision, deferral, grown, memory)


def _next_round(job: Job, target: Target, observed: Observed, judged: Judgement) -> Decision:
    memory = judged.memory
    state = GroupState(
        stop=_why_stopped(target),
        backoff_until=memory.budget.backoff_until,
        failure_open=judged.failure.open,
        stall=Cause(names.PROGRESS_STALLED, judged.stall.cause.message) if judged.stall else None,
        settled=memory.checkpoint_wait is not None,
        grow_at=may_grow_at(job, memory.grown_at),
        restart=Cause(names.GROUP_RESTARTED, explain_restart(judged.restarting)) if judged.restarting.stops else None,
        eviction=Cause(names.EVICTED, explain_eviction(target.quota)) if target.quota.evicted else None,
    )
    return next_round(job, target, observed, judged.workers.candidates, state)


def _why_stopped(target: Target) -> Cause | None:
    """Why no worker is to train; None: they are."""
    if target.held:
        return Cause(names.EVICTED, f"the job {explain_lack(target.quota)}")
    return Cause(names.JOB_SUSPENDED, "the job is suspended") if target.stopped else None
