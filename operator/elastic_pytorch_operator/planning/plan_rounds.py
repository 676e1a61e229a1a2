"""The plan of a job whose group the operator decides in rounds, together with the agents: it judges, decides and reports."""

from dataclasses import replace

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.actions import Action
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.decide_round import GroupChange, decide_round
from elastic_pytorch_operator.planning.failed_writes import lasting, mark_reported
from elastic_pytorch_operator.planning.judge_group import Judgement, judge_group
from elastic_pytorch_operator.planning.memory import Memory, Plan, find_news
from elastic_pytorch_operator.planning.plan_workers import missing_pods, pod_actions
from elastic_pytorch_operator.planning.reporting.events import (
    record_announcements,
    record_events,
    record_timeout,
)
from elastic_pytorch_operator.planning.reporting.goodput import GOODPUT, keep_account
from elastic_pytorch_operator.planning.reporting.interruption import set_up_seconds
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
from elastic_pytorch_operator.planning.reporting.status_writes import next_progress_write, status_write
from elastic_pytorch_operator.planning.reporting.stragglers import record_stragglers
from elastic_pytorch_operator.planning.rounds.membership import torn_workers
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.silence import takeover_grace_until
from elastic_pytorch_operator.spec.job import Job


def plan_rounds(job: Job, target: Target, observed: Observed, memory: Memory) -> Plan:
    """Decides what to do now for a job that trains, or is to train.

    Args:
        job: with its status.
        target: how many workers it is to have.
        observed: what is known.
        memory: what is remembered of it.
    """
    if (until := takeover_grace_until(observed)) is not None:
        return Plan(memory, actions=missing_pods(job, target, observed, memory), recheck_at=until)
    judged = judge_group(job, target, observed, memory)
    change = decide_round(job, target, observed, judged)
    findings = _find(job, target, judged, change)
    round_ = change.decision.round or observed.round
    status = describe_job(job, observed, judged.workers.candidates, round_, findings)
    account = keep_account(job, status, observed, round_, memory.account, (memory.interruption, change.memory.interruption))
    status[GOODPUT] = account.as_status(observed.time)
    write, write_at = status_write(job, status, observed, memory.written, memory.written_at)
    news = find_news(memory, change.memory, change.decision.round, judged.ending)
    events = [
        *record_announcements(observed, memory.nodes, change.memory.nodes),
        *record_events(job, target, observed, replace(news, waited=change.deferral.over)),
        *(record_stragglers(memory.stragglers, findings.stragglers) if judged.ending is None else ()),
        *record_timeout(job, findings.schedule),
    ]
    pods: list[Action] = []
    rechecks = [judged.recheck_at, change.decision.recheck_at, write_at]
    if judged.ending is None:
        pods = pod_actions(job, target, observed, judged.workers, round_, change.memory, judged.restarting)
        rechecks += _pauses(observed, judged)
    if observed.reports_progress:
        rechecks.append(next_progress_write(job.uid, observed.now, observed.reporting_jobs))
    interrupted = findings.interruption is not None and findings.interruption.seconds is None  # it has a phase for the set-up
    return Plan(
        replace(change.memory, failed=mark_reported(change.memory.failed), account=account),
        change.decision.round,
        nudge=change.decision.nudge,
        dump_stacks=judged.dump_stacks,
        set_up_seconds=None if interrupted else set_up_seconds(change.decision.round, observed),
        verdict=None if judged.ending is None else ("complete" if judged.ending.complete else "failed"),
        actions=(*pods, *events, *write),
        recheck_at=earliest(*rechecks),
        urgent_at=change.decision.recheck_at,
    )


def _find(job: Job, target: Target, judged: Judgement, change: GroupChange) -> Findings:
    """What the status says beyond what is observed."""
    memory, workers = change.memory, judged.workers
    return Findings(
        budget=memory.budget,
        target=target,
        interruption=memory.interruption,
        ending=judged.ending,
        refusals=lasting(memory.failed),
        deferral=change.deferral,
        cooling=change.decision.cooling,
        restarting=judged.restarting,
        grown=change.grown,
        starts=workers.starts,
        evacuation=workers.evacuation,
        schedule=workers.schedule,
        stragglers=memory.stragglers,
        torn=torn_workers(workers.candidates, job.unit_replicas),
    )


def _pauses(observed: Observed, judged: Judgement) -> list[float]:
    """Until when pods that are to be created have to wait, monotonic seconds."""
    budget_until, starts = judged.memory.budget.backoff_until, judged.workers.starts.backoff_until
    pauses = [max(starts.get(index, 0.0), budget_until) for index in judged.workers.replicas.create]
    return [until for until in pauses if until > observed.now]
