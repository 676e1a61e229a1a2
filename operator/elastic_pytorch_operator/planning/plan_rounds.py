"""The plan of a job whose group the operator decides in rounds, together with the agents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from elastic_pytorch_operator.model.actions import Action, CreatePod, CreateService, DeletePod, PatchStatus, TryPod
from elastic_pytorch_operator.model.failure import FailureRecord, dated, has_succeeded
from elastic_pytorch_operator.model.moments import earliest
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.completion import Departures, decide_ending
from elastic_pytorch_operator.planning.dry_run import wants_dry_run
from elastic_pytorch_operator.planning.failed_writes import describe, mark_reported, unreported
from elastic_pytorch_operator.planning.failures.active_deadline import active_since, deadline_at
from elastic_pytorch_operator.planning.failures.budget import CRASH_LOOP_SECONDS, Budget
from elastic_pytorch_operator.planning.failures.group_restart import (
    GroupRestart,
    find_group_restart,
    group_restarts,
    outdated_pods,
)
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall, find_stall
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure, judge_round
from elastic_pytorch_operator.planning.failures.rulings import (
    ended_pods,
    excused_members,
    judge_pods,
    leaving_members,
    rule_on_worker,
)
from elastic_pytorch_operator.planning.failures.start_backoff import FailedStarts, find_failed_starts
from elastic_pytorch_operator.planning.memory import Memory, Plan, notice_spec
from elastic_pytorch_operator.planning.queueing.placement import displaced_pods
from elastic_pytorch_operator.planning.queueing.quota import NO_LIMIT, Quota
from elastic_pytorch_operator.planning.reporting.events import record_announcements, record_events
from elastic_pytorch_operator.planning.reporting.recovery import advance_recovery, begin_recovery
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job, next_progress_write, write_status_at
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import defer_for_checkpoint
from elastic_pytorch_operator.planning.rounds.growth import describe_wait, grown_before, grows, may_grow_at
from elastic_pytorch_operator.planning.rounds.next_round import Decision, GroupState, group_policy, next_round
from elastic_pytorch_operator.planning.scaling.scaling import NO_NEWS, ScalingNews
from elastic_pytorch_operator.planning.workers.evacuation import nodes_to_avoid, plan_evacuation
from elastic_pytorch_operator.planning.workers.liveness import Candidate, assess_workers
from elastic_pytorch_operator.planning.workers.pod_group import plan_pod_group
from elastic_pytorch_operator.planning.workers.schedule_timeout import give_back, judge_schedule, report_timeout
from elastic_pytorch_operator.planning.workers.suspect_nodes import others_have_room, suspect_nodes
from elastic_pytorch_operator.planning.workers.takeover_grace import takeover_grace_until
from elastic_pytorch_operator.planning.workers.worker_pods import Replicas, plan_replicas
from elastic_pytorch_operator.spec.job import FAIL_JOB, Job

NO_SCALING: Mapping[str, Any] = MappingProxyType({})


def plan_rounds(
    asked: Job,
    observed: Observed,
    memory: Memory,
    quota: Quota = NO_LIMIT,
    scaling: Mapping[str, Any] = NO_SCALING,
    scaling_news: ScalingNews = NO_NEWS,
) -> Plan:
    """Decides what to do now for a job that trains, or is to train.

    Args:
        asked: the job, with the size that is wanted.
        observed: what is known.
        memory: what is remembered of it.
        quota: how many workers may run.
        scaling: what each worker adds, as the status has it.
        scaling_news: what is to be told of that.
    """
    job = quota.limit(asked)
    if (until := takeover_grace_until(observed)) is not None:
        return Plan(memory, actions=_missing_pods(job, observed, memory), recheck_at=until)
    candidates = assess_workers(observed, suspects=memory.suspects)
    suspects = suspect_nodes(memory.suspects, observed, candidates)
    starts = find_failed_starts(observed)
    avoided, outdated = {*suspects, *starts.avoid}, outdated_pods(job, observed)
    evacuation = plan_evacuation(job, observed, candidates, memory.ending)
    schedule = judge_schedule(job, observed, candidates, memory.schedule)
    displaced = displaced_pods(observed, quota)
    replicas = give_back(
        plan_replicas(
            observed.pods, observed.nodes, candidates, observed.round, job.wanted, avoided, outdated, displaced, evacuation
        ),
        schedule,
        observed,
    )
    if replicas.victims:
        candidates = assess_workers(observed, replicas.victims, suspects, evacuation.leaving)
    stall, stall_recheck = find_stall(job, observed, memory.stall)
    dump_stacks = stall is not None and stall != memory.stall
    restart = stall if stall is not None and observed.now >= stall.restart_at else None
    failure = judge_round(observed, candidates)
    leaving = leaving_members(observed, candidates, memory.leaving, replicas.victims)
    pods = judge_pods(observed, candidates, job.rules, ended_pods(observed), replicas.victims, leaving)
    last_before = memory.budget.last
    memory = replace(
        notice_spec(job, memory),
        suspects=suspects,
        ending=evacuation.ending,
        schedule=schedule,
        stall=stall,
        leaving=leaving,
        excused=excused_members(observed, memory.excused, pods, leaving),
        grown_at=grown_before(job, observed, memory.grown_at),
        active_since=active_since(job, observed, memory.active_since),
        budget=_count_failures(job, observed, memory.budget, failure, pods, restart),
    )
    group_restart = find_group_restart(job, observed, memory.budget)
    ending, ending_recheck = decide_ending(
        job,
        observed,
        candidates,
        memory.budget,
        Departures(replicas.victims, memory.excused, memory.leaving),
        invalid=memory.invalid,
        deadline_at=deadline_at(job, memory.active_since),
        starts=starts,
    )
    frozen = ending is not None or group_restart.asked
    decision = (
        Decision() if frozen else _decide_round(job, observed, candidates, memory, failure, restart, group_restart.stops, quota)
    )
    deferral = defer_for_checkpoint(job, observed, decision.round, memory.checkpoint_wait, evacuation.leave_by(observed))
    if deferral.until is not None:
        decision = Decision(recheck_at=earliest(deferral.until, *(candidate.recheck_at for candidate in candidates)))
    recovery = advance_recovery(memory.recovery, observed.round, observed.agents.values())
    if decision.round is not None:
        recovery = begin_recovery(observed.round, decision.round, observed, recovery)
    recovered = recovery is not None and recovery.seconds is not None and recovery != memory.recovery
    grown = grows(observed.round, decision.round)
    memory = replace(
        memory, recovery=recovery, checkpoint_wait=deferral.wait, grown_at=observed.now if grown else memory.grown_at
    )
    round_ = decision.round or observed.round
    findings = Findings(
        budget=memory.budget,
        recovery=recovery,
        ending=ending,
        refusal=describe(memory.failed),
        waiting=deferral.text,
        cooling=describe_wait(job, decision.cooling) if decision.cooling else "",
        restarting=group_restart,
        grown=grown,
        starts=starts,
        evacuating=evacuation.describe(),
        schedule=schedule,
        scaling=scaling,
        quota=quota,
    )
    status = describe_job(asked, observed, candidates, round_, findings)
    actions: list[Action] = []
    recheck = earliest(decision.recheck_at, stall_recheck, ending_recheck, evacuation.recheck_at, schedule.recheck_at)
    if ending is None:
        actions += _pod_actions(job, observed, replicas, round_, memory, starts, group_restart)
        pauses = [max(starts.backoff_until.get(index, 0.0), memory.budget.backoff_until) for index in replicas.create]
        recheck = earliest(recheck, *(until for until in pauses if until > observed.now))
    news = unreported(memory.failed)
    ruled = memory.budget.last if memory.budget.last is not last_before else None
    actions += [
        *record_announcements(observed, evacuation.announced),
        *record_events(
            asked,
            observed,
            decision.round,
            recovery if recovered else None,
            ending,
            news,
            deferral.over,
            ruled,
            scaling_news,
            quota,
        ),
        *report_timeout(job, schedule),
    ]
    memory = replace(memory, failed=mark_reported(memory.failed))
    progress_at = next_progress_write(job.uid, memory.written_at, observed.reporting_jobs)
    due = write_status_at(job.status, status, memory.written, memory.written_at, observed.now, progress_at)
    if due is not None and due <= observed.now:
        actions.append(PatchStatus(status))
    else:
        recheck = earliest(recheck, due)
    recheck = earliest(recheck, _progress_at(job, observed))
    return Plan(
        memory,
        decision.round,
        nudge=decision.nudge,
        dump_stacks=dump_stacks,
        verdict=None if ending is None else ("complete" if ending.complete else "failed"),
        actions=tuple(actions),
        recheck_at=recheck,
        recheck_urgent=recheck is not None and recheck == decision.recheck_at,
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
    budget = budget.after_pods(pods, there, observed.now, back_off=crashed)
    if observed.round is not None and cause is not None:
        cause = rule_on_worker(dated(cause, observed), observed, job.rules)
        budget = budget.after_round(observed.round.number, cause, observed.now, back_off=crashed or failure.echoes_only)
    return budget


def _decide_round(
    job: Job,
    observed: Observed,
    candidates: Sequence[Candidate],
    memory: Memory,
    failure: RoundFailure,
    restart: Stall | None,
    replaced: str,
    quota: Quota,
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
        evicted=quota.text if quota.held else "",
        reclaimed=quota.reclaimed,
    )
    return next_round(current, candidates, group_policy(job), state, observed.now)


def _missing_pods(job: Job, observed: Observed, memory: Memory) -> tuple[Action, ...]:
    """Pods for indices that have none: a new leader can create them before it has heard any agent.

    None if a worker has succeeded, for the job may be about to complete, or if the loss of a pod is to fail the job.
    """
    ending = any(pod.succeeded for pod in observed.pods) or any(
        agent.state is AgentState.SUCCEEDED for agent in observed.agents.values()
    )
    taken = {pod.index for pod in observed.pods if not pod.deleting}
    gang = plan_pod_group(job, observed, memory.failed)
    pauses = observed.now < max(memory.budget.backoff_until, memory.schedule.retry_at)
    if ending or job.on_pod_loss == FAIL_JOB or pauses or gang.holds_pods:
        return gang.actions
    missing = [index for index in range(job.wanted) if index not in taken][: max(0, job.wanted - len(taken))]
    return (*gang.actions, *(CreatePod(index, group_restarts=group_restarts(job)) for index in missing))


def _pod_actions(
    job: Job,
    observed: Observed,
    replicas: Replicas,
    round_: Round | None,
    memory: Memory,
    starts: FailedStarts,
    restarting: GroupRestart,
) -> list[Action]:
    gang = plan_pod_group(job, observed, memory.failed)
    actions: list[Action] = [*gang.actions, *([] if observed.service_exists else [CreateService()])]
    backing_off = {index for index, until in starts.backoff_until.items() if observed.now < until}
    held = restarting.asked or gang.holds_pods or observed.now < memory.budget.backoff_until
    if replicas.create and not held:
        sure, soft = nodes_to_avoid(observed.nodes, job.template, observed.time)
        avoided = {*memory.suspects, *starts.avoid, *sure, *soft}
        strictly = not avoided or others_have_room(avoided, observed.nodes, observed.pods, job.template)
        if sure and not strictly:  # a node that ends soon is worse than none
            avoided, strictly = sure, True
        avoid = tuple(sorted(avoided))
        actions += [
            CreatePod(
                index,
                avoid,
                strictly=strictly,
                failed_starts=starts.nodes.get(index, ()),
                group_restarts=group_restarts(job),
            )
            for index in replicas.create
            if index not in backing_off
        ]
    if not replicas.create and wants_dry_run(job, observed, memory.tried_generation, memory.failed):
        actions.append(TryPod())
    members = round_.ranks if round_ else {}
    for name in sorted(replicas.victims):
        if name not in members:
            actions.append(DeletePod(name, observed.pods_by_name[name].uid, "is no longer wanted"))
    # Kept until their replacements, which take over their counts, are made.
    remembers = {pod.name for index, pod in starts.newest.items() if index in backing_off}
    for pod in replicas.discard:
        if pod.name not in members and pod.name not in remembers:
            actions.append(DeletePod(pod.name, pod.uid, "no longer serves"))
    for pod in replicas.abandon:
        if pod.name not in members:
            force = observed.nodes[pod.node].removed
            actions.append(DeletePod(pod.name, pod.uid, f"was on node {pod.node}, which is lost", force=force))
    return actions
