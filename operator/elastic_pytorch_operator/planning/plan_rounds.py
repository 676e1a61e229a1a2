"""The plan of a job whose group the operator decides in rounds, together with the agents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.actions import Action
from elastic_pytorch_operator.model.failure import FailureRecord, dated, has_succeeded
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.completion import Departures, active_since, deadline_at, decide_ending
from elastic_pytorch_operator.planning.failed_writes import describe, mark_reported, unreported
from elastic_pytorch_operator.planning.failures.budget import CRASH_LOOP_SECONDS, Budget
from elastic_pytorch_operator.planning.failures.group_restart import (
    find_group_restart,
)
from elastic_pytorch_operator.planning.failures.memory_fit import judge_size
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall, find_stall
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure, judge_round
from elastic_pytorch_operator.planning.failures.rulings import (
    ended_pods,
    excused_members,
    judge_pods,
    leaving_members,
    rule_on_worker,
)
from elastic_pytorch_operator.planning.memory import Memory, Plan, notice_spec
from elastic_pytorch_operator.planning.plan_pods import missing_pods, pod_actions
from elastic_pytorch_operator.planning.plan_workers import plan_workers
from elastic_pytorch_operator.planning.reporting.events import record_announcements, record_events, record_preflight
from elastic_pytorch_operator.planning.reporting.interruption import advance_interruption, begin_interruption
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job, next_progress_write, status_write
from elastic_pytorch_operator.planning.reporting.stragglers import NO_STRAGGLERS, advance_stragglers, record_stragglers
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import defer_for_checkpoint
from elastic_pytorch_operator.planning.rounds.growth import describe_wait, grown_before, grows, may_grow_at
from elastic_pytorch_operator.planning.rounds.next_round import Decision, GroupState, group_policy, next_round
from elastic_pytorch_operator.planning.scaling.scaling import NO_NEWS, ScalingNews
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.planning.workers.schedule_timeout import report_timeout
from elastic_pytorch_operator.planning.workers.silence import takeover_grace_until
from elastic_pytorch_operator.spec.job import Job

NO_SCALING: Mapping[str, Any] = MappingProxyType({})


def plan_rounds(
    job: Job,
    target: Target,
    observed: Observed,
    memory: Memory,
    scaling: Mapping[str, Any] = NO_SCALING,
    scaling_news: ScalingNews = NO_NEWS,
) -> Plan:
    """Decides what to do now for a job that trains, or is to train.

    Args:
        job: the job.
        target: how many workers it is to have.
        observed: what is known.
        memory: what is remembered of it.
        scaling: what each worker adds, as the status has it.
        scaling_news: what of that is new.
    """
    if (until := takeover_grace_until(observed)) is not None:
        return Plan(memory, actions=missing_pods(job, target, observed, memory), recheck_at=until)
    workers = plan_workers(job, target, observed, memory)
    candidates, victims = workers.candidates, workers.replicas.victims
    stall, stall_recheck = find_stall(job, observed, memory.stall)
    dump_stacks = stall is not None and stall != memory.stall
    restart = stall if stall is not None and observed.now >= stall.restart_at else None
    memory = notice_spec(job, memory)
    fit, failure = judge_size(memory.fit, target, observed, judge_round(observed, candidates))
    leaving = leaving_members(observed, candidates, memory.leaving, victims)
    pods = judge_pods(observed, candidates, job.rules, ended_pods(observed), victims, leaving)
    last_before = memory.budget.last
    memory = replace(
        memory,
        suspects=workers.suspects,
        ending=workers.evacuation.ending,
        schedule=workers.schedule,
        preflight=workers.preflight.state,
        fit=fit,
        stall=stall,
        leaving=leaving,
        excused=excused_members(observed, memory.excused, pods, leaving),
        grown_at=grown_before(job, observed, memory.grown_at),
        active_since=active_since(job, target, observed, memory.active_since),
        budget=_count_failures(job, observed, memory.budget, failure, pods, restart),
    )
    group_restart = find_group_restart(job, observed, memory.budget)
    ending, ending_recheck = decide_ending(
        job,
        target,
        observed,
        candidates,
        memory.budget,
        Departures(victims, memory.excused, memory.leaving),
        invalid=memory.invalid,
        deadline_at=deadline_at(job, memory.active_since),
        starts=workers.starts,
    )
    frozen = ending is not None or group_restart.asked
    decision = (
        Decision()
        if frozen
        else _decide_round(job, target, observed, candidates, memory, failure, restart, group_restart.stops)
    )
    deferral = defer_for_checkpoint(
        job, observed, decision.round, memory.checkpoint_wait, workers.evacuation.leave_by(observed)
    )
    if deferral.until is not None:
        decision = Decision(recheck_at=earliest(deferral.until, *(candidate.recheck_at for candidate in candidates)))
    interruption = advance_interruption(memory.interruption, observed.round, observed.agents.values(), observed.time)
    if decision.round is not None:
        interruption = begin_interruption(observed.round, decision.round, observed, interruption)
        if not decision.round.size:
            memory = replace(memory, preflight=memory.preflight.voided())
    resumed = interruption is not None and interruption.seconds is not None and interruption != memory.interruption
    grown = grows(observed.round, decision.round)
    round_ = decision.round or observed.round
    stragglers = NO_STRAGGLERS if ending is not None else advance_stragglers(memory.stragglers, round_, observed)
    findings = Findings(
        budget=memory.budget,
        target=target,
        interruption=interruption,
        ending=ending,
        refusal=describe(memory.failed),
        waiting=deferral.text,
        cooling=describe_wait(job, decision.cooling) if decision.cooling else "",
        restarting=group_restart,
        grown=grown,
        starts=workers.starts,
        evacuating=workers.evacuation.describe(),
        schedule=workers.schedule,
        scaling=scaling,
        stragglers=stragglers,
        preflight=workers.preflight,
        fit=fit,
    )
    status = describe_job(job, observed, candidates, round_, findings)
    actions: list[Action] = []
    recheck = earliest(decision.recheck_at, stall_recheck, ending_recheck, workers.recheck_at)
    if ending is None:
        actions += pod_actions(job, target, observed, workers, round_, memory, group_restart)
        pauses = [
            max(workers.starts.backoff_until.get(index, 0.0), memory.budget.backoff_until) for index in workers.replicas.create
        ]
        recheck = earliest(recheck, *(until for until in pauses if until > observed.now))
    ruled = memory.budget.last if memory.budget.last is not last_before else None
    actions += [
        *record_announcements(observed, workers.evacuation.announced),
        *record_events(
            job,
            target,
            observed,
            decision.round,
            interruption if resumed else None,
            ending,
            unreported(memory.failed),
            deferral.over,
            ruled,
            scaling_news,
        ),
        *(record_stragglers(memory.stragglers, stragglers) if ending is None else ()),
        *record_preflight(workers.preflight),
        *report_timeout(job, workers.schedule),
    ]
    write, write_at = status_write(job, status, observed, memory.written, memory.written_at)
    return Plan(
        replace(
            memory,
            interruption=interruption,
            checkpoint_wait=deferral.wait,
            grown_at=observed.now if grown else memory.grown_at,
            stragglers=stragglers,
            failed=mark_reported(memory.failed),
        ),
        decision.round,
        nudge=decision.nudge,
        dump_stacks=dump_stacks,
        checks=workers.preflight.requests,
        verdict=None if ending is None else ("complete" if ending.complete else "failed"),
        actions=(*actions, *write),
        recheck_at=earliest(recheck, write_at, _progress_at(job, observed)),
        urgent_at=decision.recheck_at,
    )


def _progress_at(job: Job, observed: Observed) -> float | None:
    """When to look at the steps that agents have reported; None: they report none."""
    return next_progress_write(job.uid, observed.now, observed.reporting_jobs) if observed.reports_progress else None


def _count_failures(
    job: Job, observed: Observed, budget: Budget, failure: RoundFailure, pods: Sequence[FailureRecord], stall: Stall | None
) -> Budget:
    reports = [observed.agents[name].progress for name in observed.ranks if name in observed.agents]
    step = max((r.step for r in reports if r.step is not None), default=None)
    checkpoint_step = max((r.checkpoint_step for r in reports if r.checkpoint_step is not None), default=None)
    pods = [dated(record, observed) for record in pods]
    cause = stall.cause if stall is not None else failure.cause
    lasted = observed.now - observed.round.declared_at if observed.round and observed.round.size else 0.0
    if step is not None:
        budget = budget.after_progress(step, checkpoint_step)
    elif cause is None and not failure.open and all(pod.pod_uid in budget.counted_pods for pod in pods):  # kept for their logs
        budget = budget.after_steady_round(lasted)
    crashed = lasted < CRASH_LOOP_SECONDS
    there = [pod.uid for pod in observed.pods]
    if observed.round is not None and cause is not None:
        cause = rule_on_worker(dated(cause, observed), observed, job.rules)
        budget = budget.after_round(observed.round.number, cause, observed.now, back_off=crashed or failure.echoes_only)
    return budget.after_pods(pods, there, observed.now, back_off=crashed)


def _decide_round(
    job: Job,
    target: Target,
    observed: Observed,
    candidates: Sequence[Candidate],
    memory: Memory,
    failure: RoundFailure,
    restart: Stall | None,
    replaced: str,
) -> Decision:
    current = observed.round
    finishing = current is not None and any(has_succeeded(name, observed) for name in current.ranks)
    state = GroupState(
        last_number=max(int(job.status.get("round", 0)), *(agent.newest for agent in observed.agents.values()), 0),
        backoff_until=memory.budget.backoff_until,
        failure_open=failure.open,
        finishing=finishing,
        stalled=restart.cause.message if restart else "",
        settled=memory.checkpoint_wait is not None,
        grow_at=may_grow_at(job, memory.grown_at),
        replaced=replaced,
        evicted=target.quota.text if target.held else "",
        reclaimed=target.quota.reclaimed,
    )
    return next_round(current, candidates, group_policy(job, target, memory.fit), state, observed.now)
