"""The plan of a job whose group the operator forms in rounds with the agents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.actions import Action
from elastic_pytorch_operator.model.failure import Ending, FailureRecord
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.completion import decide_ending
from elastic_pytorch_operator.planning.failed_writes import lasting
from elastic_pytorch_operator.planning.failures.budget import CRASH_LOOP_SECONDS, Budget
from elastic_pytorch_operator.planning.failures.failed_pods import (
    ended_pods,
    excused_members,
    judge_pods,
    leaving_members,
    rule_on_worker,
)
from elastic_pytorch_operator.planning.failures.group_restart import (
    GroupRestart,
    find_group_restart,
)
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall, find_stall
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure, judge_round
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.nodes.objections import failed_again
from elastic_pytorch_operator.planning.plan_workers import (
    WorkerPlan,
    missing_pods,
    plan_workers,
    pod_actions,
)
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.reporting.events import (
    News,
    record_announcements,
    record_events,
    record_timeout,
)
from elastic_pytorch_operator.planning.reporting.goodput import keep_account
from elastic_pytorch_operator.planning.reporting.interruption import (
    Interruption,
    Interruptions,
    advance_interruption,
    begin_interruption,
    set_up_seconds,
)
from elastic_pytorch_operator.planning.reporting.quota_conditions import (
    explain_eviction,
    explain_lack,
)
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
from elastic_pytorch_operator.planning.reporting.status_writes import (
    next_progress_write,
    status_write,
)
from elastic_pytorch_operator.planning.reporting.stragglers import (
    NO_STRAGGLERS,
    advance_stragglers,
    record_stragglers,
)
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import Deferral, defer_for_checkpoint
from elastic_pytorch_operator.planning.rounds.membership import torn_workers
from elastic_pytorch_operator.planning.rounds.next_round import Cause, Decision, grows, next_round
from elastic_pytorch_operator.planning.workers.silence import takeover_grace_until
from elastic_pytorch_operator.spec.job import Job

# Between two plans while agents report: for the windows of their work, and the metrics of what a
# job's time is spent on.
REGULAR_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Judgement:
    workers: WorkerPlan
    memory: Memory
    failure: RoundFailure
    stall: Stall | None  # the group restarts for it now
    dump_stacks: bool
    restarting: GroupRestart
    ending: Ending | None
    recheck_at: float | None


def plan_rounds(job: Job, target: Target, observed: Observed, memory: Memory) -> Plan:
    if (until := takeover_grace_until(observed)) is not None:
        return Plan(memory, actions=missing_pods(job, target, observed, memory), recheck_at=until)
    judged = _judge_group(job, target, observed, memory)
    decision, deferral, resumed, after = _decide(job, target, observed, judged)
    workers, ending, current = judged.workers, judged.ending, after.interruptions.current
    findings = Findings(
        budget=after.budget,
        target=target,
        interruptions=after.interruptions,
        ending=ending,
        refusals=lasting(after.answers.failed),
        waiting=deferral.waits,
        cooling=decision.cooling,
        restarting=judged.restarting,
        grown=grows(observed.round, decision.round),
        starts=workers.starts,
        leaving=workers.evacuation.explain(),
        schedule=workers.schedule,
        stragglers=after.stragglers,
        torn=torn_workers(workers.candidates, job.unit_replicas),
    )
    round_ = decision.round or observed.round
    status = describe_job(job, observed, workers.candidates, round_, findings)
    account = keep_account(
        job, status, observed, round_, memory.account, after.interruptions, resumed
    )
    write, write_at = status_write(job, status, account, observed, memory.written)
    failed, refusals = after.budget.new_cause(memory.budget), after.answers.unreported
    news = News(decision.round, resumed, ending, refusals, deferral.over, failed)
    events = [
        *record_announcements(observed, memory.nodes, after.nodes),
        *record_events(job, target, observed, news),
        *(record_stragglers(memory.stragglers, after.stragglers) if ending is None else ()),
        *record_timeout(job, workers.schedule),
    ]
    pods: list[Action] = []
    rechecks = [judged.recheck_at, decision.recheck_at, write_at]
    if ending is None:
        pods = pod_actions(job, target, observed, workers, round_, after, judged.restarting)
        starts, budget_until = workers.starts.backoff_until, after.budget.backoff_until
        pauses = (max(starts.get(i, 0.0), budget_until) for i in workers.replicas.create)
        rechecks += [until for until in pauses if until > observed.now]
    if (silent_at := earliest(*(worker.silent_at for worker in workers.candidates))) is not None:
        rechecks.append(observed.now + REGULAR_SECONDS)
    if observed.reports_progress:
        rechecks.append(next_progress_write(job.uid, observed.now, observed.reporting_jobs))
    return Plan(
        replace(after, answers=after.answers.reported(), account=account),
        decision.round,
        nudge=decision.nudge,
        dump_stacks=judged.dump_stacks,
        resumed=resumed,
        # An interruption has a phase for the set-up.
        set_up_seconds=None if current else set_up_seconds(decision.round, observed),
        verdict=None if ending is None else "complete" if ending.complete else "failed",
        actions=(*pods, *events, *write),
        recheck_at=earliest(*rechecks),
        urgent_at=decision.recheck_at,
        silent_at=silent_at,
    )


def _judge_group(job: Job, target: Target, observed: Observed, memory: Memory) -> _Judgement:
    stall, stall_recheck = find_stall(job, observed, memory.stall)
    dump_stacks = stall is not None and (memory.stall is None or stall.round != memory.stall.round)
    restart = stall if stall is not None and observed.now >= stall.restart_at else None
    workers = plan_workers(job, target, observed, memory)
    candidates, victims = workers.candidates, workers.replicas.victims
    failure = judge_round(observed, candidates, failed_again(workers.objections))
    leaving = leaving_members(observed, candidates, memory.leaving, victims)
    pods = judge_pods(observed, candidates, job.rules, ended_pods(observed), victims, leaving)
    excused = excused_members(observed, memory.excused, pods, leaving)
    memory = replace(
        memory,
        answers=memory.answers.about(job.generation),
        nodes=workers.objections,
        schedule=workers.schedule,
        stall=stall,
        victims=victims,
        excused=excused,
        leaving=leaving,
        active_since=memory.begin_active(observed.now, stopped=target.stopped),
        budget=_count_failures(job, observed, memory.budget, failure, pods, restart),
    )
    ending, ending_recheck = decide_ending(
        job, target, observed, candidates, memory, workers.starts
    )
    restarting = find_group_restart(job, observed, memory.budget)
    rechecks = (workers.evacuation.recheck_at, workers.schedule.recheck_at)
    recheck = earliest(stall_recheck, ending_recheck, *rechecks)
    return _Judgement(workers, memory, failure, restart, dump_stacks, restarting, ending, recheck)


def _count_failures(
    job: Job,
    observed: Observed,
    budget: Budget,
    failure: RoundFailure,
    pods: Sequence[FailureRecord],
    stall: Stall | None,
) -> Budget:
    steps = (agent.progress.step for agent in observed.agents_in(observed.round))
    step = max((step for step in steps if step is not None), default=None)
    cause = stall.cause if stall is not None else failure.cause
    round_ = observed.round
    lasted = observed.now - round_.declared_at if round_ and round_.size else 0.0
    if step is not None:
        budget = budget.after_progress(step, lasted)
    elif cause is None and not failure.open and all(p.pod_uid in budget.counted_pods for p in pods):
        # Counted pods are kept for their logs.
        budget = budget.after_steady_round(lasted)
    crashed = lasted < CRASH_LOOP_SECONDS
    there = [pod.uid for pod in observed.pods]
    if round_ is not None and cause is not None:
        cause = rule_on_worker(cause, observed, job.rules)
        back_off = crashed or failure.echoes_only
        budget = budget.after_round(round_.number, cause, observed.now, back_off=back_off)
    return budget.after_pods(pods, there, observed.now, back_off=crashed)


def _decide(
    job: Job, target: Target, observed: Observed, judged: _Judgement
) -> tuple[Decision, Deferral, Interruption | None, Memory]:
    memory, candidates = judged.memory, judged.workers.candidates
    frozen = judged.ending is not None or judged.restarting.asked
    decision = Decision() if frozen else _next_round(job, target, observed, judged)
    leave_by = judged.workers.evacuation.leave_by
    deferral = defer_for_checkpoint(job, observed, decision.round, memory.checkpoint_wait, leave_by)
    if deferral.until is not None:
        decision = Decision(
            recheck_at=earliest(deferral.until, *(c.recheck_at for c in candidates))
        )
    gone = {c.worker for c in candidates if c.gone}
    known = memory.interruptions
    current = advance_interruption(known.current, observed, gone)
    resumed = current if current is not None and current.seconds is not None else None
    current = None if resumed else current
    if decision.round is not None:
        current = begin_interruption(
            decision.round,
            observed,
            current,
            status_step=(job.status.get("progress") or {}).get("step"),
            unled_step=known.unled_step,
        )
    unled_step = known.unled_step if observed.round is None and decision.round is None else None
    grown = grows(observed.round, decision.round)
    memory = replace(
        memory,
        interruptions=Interruptions(current, resumed or known.last, unled_step),
        checkpoint_wait=deferral.wait,
        grown_at=observed.now if grown else memory.grown_at,
        stragglers=NO_STRAGGLERS
        if judged.ending
        else advance_stragglers(memory.stragglers, decision.round or observed.round, observed),
    )
    return decision, deferral, resumed, memory


def _next_round(job: Job, target: Target, observed: Observed, judged: _Judgement) -> Decision:
    memory = judged.memory
    return next_round(
        job,
        target,
        observed,
        judged.workers.candidates,
        stop=_why_stopped(target),
        backoff_until=memory.budget.backoff_until,
        failure_open=judged.failure.open,
        stall=Cause(names.PROGRESS_STALLED, judged.stall.cause.message) if judged.stall else None,
        settled=memory.checkpoint_wait is not None,
        grown_at=memory.grown_at,
        restart=Cause(names.GROUP_RESTARTED, judged.restarting.explain())
        if judged.restarting.stops
        else None,
        eviction=Cause(names.EVICTED, explain_eviction(target.quota))
        if target.quota.evicted
        else None,
    )


def _why_stopped(target: Target) -> Cause | None:
    if target.held:
        return Cause(names.EVICTED, f"the job {explain_lack(target.quota)}")
    return Cause(names.JOB_SUSPENDED, "the job is suspended") if target.stopped else None
