"""What a job's status should say."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import (
    Condition,
    ended,
    has_ended,
    is_true,
    merge_conditions,
    not_ended,
)
from elastic_pytorch_operator.model.failure import Ending
from elastic_pytorch_operator.model.observed import (
    MAX_METRICS,
    AgentState,
    AgentView,
    Observed,
    Progress,
)
from elastic_pytorch_operator.model.operator_state import OperatorState, read_operator_state
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.model.status_changes import HISTORY
from elastic_pytorch_operator.planning.failed_writes import MAX_REPORTED, name_some
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.group_restart import NO_RESTART, GroupRestart
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED, FailedStarts
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.reporting.failing_saves import (
    explain_unsaved_steps,
    with_failing_saves,
)
from elastic_pytorch_operator.planning.reporting.goodput import processes_of_a_worker
from elastic_pytorch_operator.planning.reporting.history import add_changes, count_interruptions
from elastic_pytorch_operator.planning.reporting.ignored_fields import with_ignored_fields
from elastic_pytorch_operator.planning.reporting.interruption import NO_INTERRUPTIONS, Interruptions
from elastic_pytorch_operator.planning.reporting.missing_workers import (
    explain_shortage,
    may_train,
    unheard_group,
)
from elastic_pytorch_operator.planning.reporting.quota_conditions import (
    as_before,
    explain_lack,
    held,
    not_suspended,
    reason_of,
    suspended,
)
from elastic_pytorch_operator.planning.reporting.stragglers import NO_STRAGGLERS, Stragglers
from elastic_pytorch_operator.planning.reporting.worker_list import describe_workers
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.planning.workers.process_counts import explain_difference
from elastic_pytorch_operator.planning.workers.schedule_timeout import NO_WAIT, ScheduleWait
from elastic_pytorch_operator.spec.failure_rules import FailureAction
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.stored_job import LAST_VALID, recorded

Status = dict[str, Any]
MAX_REFUSAL_CHARACTERS = 1024  # as in an event's note


@dataclass(frozen=True, slots=True)
class Findings:
    budget: Budget
    target: Target
    interruptions: Interruptions = NO_INTERRUPTIONS
    ending: Ending | None = None
    refusals: Sequence[str] = ()
    waiting: str = ""  # a change, for a checkpoint
    cooling: str = ""  # newcomers wait, as the group has just grown
    restarting: GroupRestart = NO_RESTART
    grown: bool = False
    starts: FailedStarts = NONE_FAILED
    leaving: str = ""  # workers will, once their replacements are ready
    schedule: ScheduleWait = NO_WAIT
    stragglers: Stragglers = NO_STRAGGLERS
    torn: Container[str] = frozenset()  # ready workers that wait for others of their unit


def describe_job(
    job: Job,
    observed: Observed,
    candidates: Sequence[Candidate],
    round_: Round | None,
    findings: Findings,
) -> Status:
    budget, current, ending = findings.budget, findings.interruptions.current, findings.ending
    old = job.status
    live = [c for c in candidates if c.alive]
    ready = sum(c.ready and c.worker not in findings.torn for c in live)
    ready_spares = count_spares(findings.target, ready)
    agents = observed.agents_in(round_)
    backs_off = observed.now < budget.backoff_until and any(c.failed for c in live)
    paused = findings.restarting.asked or backs_off
    size = 0 if paused or round_ is None else round_.size
    unheard = may_train(old, live, size) and not findings.target.stopped
    trains = (bool(round_ and round_.members) and ending is None and not paused) or unheard
    workers, newest_pod_time = describe_workers(
        candidates, job, observed, round_, findings.target.size, findings.torn
    )
    grown_time = observed.time if findings.grown else read_operator_state(old).last_growth_time
    open_ = current.as_state() if current is not None and ending is None else {}
    state = OperatorState(findings.schedule.timeouts, grown_time, newest_pod_time, open_)
    status: Status = {
        "observedGeneration": job.generation,
        "replicas": len(live) - count_spares(findings.target, len(live)),
        "readyReplicas": ready - ready_spares,
        **_occasional_fields(job, findings),
        "selector": f"{names.LABEL_JOB_NAME}={job.key.name},{names.LABEL_ROLE}={names.ROLE_WORKER}",
        "round": round_.number if round_ else int(old.get("round", 0)),
        "worldSize": size * processes_of_a_worker(agents, job),
        "failures": budget.failures,
        "totalFailures": budget.total,
        **workers,
        **state.as_status(),
    }
    if unheard:
        status["worldSize"] = int(old.get("worldSize", 0))
    if not findings.target.stopped:
        status["startTime"] = old.get("startTime") or observed.time
    if job.spares:
        status["readySpares"] = ready_spares
    # Workers that leave report the last checkpoint, which they write in their grace period.
    reporting = agents or [agent for agent in observed.agents.values() if findings.target.stopped]
    if progress := describe_progress(reporting, old.get("progress") or {}):
        status["progress"] = progress
    history = add_changes(
        old.get(HISTORY) or (), findings.interruptions, round_, progress, observed.time
    )
    status["interruptions"] = count_interruptions(history)
    if history:
        status[HISTORY] = history
    cause = (ending.cause if ending else None) or budget.last
    if cause is not None:
        status["rootCause"] = cause.as_status()
    elif old.get("rootCause"):
        status["rootCause"] = old["rootCause"]
    unsaved = explain_unsaved_steps(progress) if job.suspend else ""
    if ending is not None:
        conditions = ended(ending.reason, ending.message, complete=ending.complete)
        status |= {"completionTime": observed.time, "worldSize": 0}
    else:
        conditions = _conditions(
            job, observed, live, round_, size, findings, ready - ready_spares, unheard, unsaved
        )
        conditions = [
            with_ignored_fields(each, job) if each.type == names.DEGRADED else each
            for each in (*conditions, *not_ended())
        ]
    status["conditions"] = merge_conditions(
        old, conditions, generation=job.generation, time=observed.time
    )
    status["state"] = _state(job, status, trains)
    return status


def _occasional_fields(job: Job, findings: Findings) -> Status:
    found: Status = {}
    if job.template_uid is not None:
        found["template"] = job.status["template"]
    if job.last_valid is not None:
        found[LAST_VALID] = recorded(job.last_valid)
    if findings.budget.group_restarts:
        found["groupRestarts"] = findings.budget.group_restarts
    if findings.refusals:
        refusals = findings.refusals[:MAX_REPORTED]
        found["refusals"] = [words[:MAX_REFUSAL_CHARACTERS] for words in refusals]
    if findings.stragglers.slow:
        found["stragglers"] = findings.stragglers.as_status()
    return found


def count_spares(target: Target, workers: int) -> int:
    """How many of some workers are beyond the wanted ones, whichever they are."""
    return 0 if target.stopped else min(target.spares, max(0, workers - target.size))


def _conditions(
    job: Job,
    observed: Observed,
    live: Sequence[Candidate],
    round_: Round | None,
    size: int,
    findings: Findings,
    ready: int,
    unheard: bool,
    unsaved: str,
) -> list[Condition]:
    target, refusal = findings.target, name_some(findings.refusals)
    waiting, cooling = findings.waiting, findings.cooling
    if job.suspend:
        return suspended(job, observed, size, waiting, refusal, unsaved)
    if target.held:
        why = "; ".join(filter(None, (explain_lack(target.quota), job.problem)))
        found = held(reason_of(target.quota), why, observed, size, waiting, refusal)
        return [*found, not_suspended(job)]
    if job.problem and target.stopped:
        why = f"waits for a valid spec: {job.problem}"
        found = held(names.INVALID_SPEC, why, observed, size, waiting, refusal)
        return [*found, as_before(job)]
    if unheard:
        return [*unheard_group(live), not_suspended(job)]
    apart = explain_difference(round_.ranks if round_ else (), live, observed.pods_by_name)
    speaking = {pod.name for pod in observed.pods if pod.started} if job.stock else observed.agents
    preparing = {n for n, agent in observed.agents.items() if agent.state is AgentState.PREPARING}
    pods = (*observed.pods, *observed.stores)
    missing = explain_shortage(pods, speaking, findings.starts, preparing, findings.torn)
    shortage = "; ".join(filter(None, (apart, missing, refusal, explain_lack(target.quota))))
    running = _running(job, observed, size, findings, ready, shortage)
    whole = f"all {target.wanted} wanted workers train" if size == target.wanted else ""
    if whole and job.requested != target.wanted:
        whole += f"; {job.requested} were requested, which {job.rounded_by} rounds down"
    resizing = Condition(names.RESIZING, False, names.AT_WANTED_SIZE, whole)
    if not size:
        text = "no group is training yet; see condition Running"
        resizing = Condition(names.RESIZING, False, names.WAITING_FOR_WORKERS, text)
    degraded = replace(resizing, type=names.DEGRADED)
    if size and size != target.wanted:
        word = "growing" if size < target.wanted else "shrinking"
        text = f"{word} from {size} to {target.wanted} workers"
        resizing = Condition(names.RESIZING, True, names.SIZE_CHANGING, text)
    if findings.leaving and size:
        text = f"{resizing.message}; {findings.leaving}" if resizing.true else findings.leaving
        resizing = Condition(names.RESIZING, True, names.NODE_ENDING, text)
    if waiting:
        text = f"{resizing.message}: {waiting}" if resizing.true else waiting
        resizing = Condition(names.RESIZING, True, names.WAITING_FOR_CHECKPOINT, text)
    if cooling:
        resizing = replace(
            resizing, true=True, reason=names.COOLING_DOWN, message=f"{resizing.message}: {cooling}"
        )
    if size and size < target.wanted:
        text, reason = f"trains with {size} of {target.wanted} workers", names.WORKERS_MISSING
        if target.quota.lack and size == target.quota.size:
            reason = reason_of(target.quota)
        text = "; ".join(filter(None, (text, shortage, cooling)))
        degraded = Condition(names.DEGRADED, True, reason, text)
    degraded = with_failing_saves(degraded, job, observed, round_ if size else None)
    if job.problem:
        text = f"{job.problem}; the job goes on by its last valid spec"
        message = f"{text}; {degraded.message}" if degraded.true else text
        degraded = Condition(names.DEGRADED, True, names.INVALID_SPEC, message)
    return [running, resizing, degraded, not_suspended(job)]


def _running(
    job: Job, observed: Observed, size: int, findings: Findings, ready: int, shortage: str
) -> Condition:
    if size:
        text, reason = f"{size} of {findings.target.wanted} workers train", names.ROUND_RUNNING
        if observed.saving_since is not None:
            text = "the training is done, and its last checkpoint is being written"
            reason = names.SAVING
        refusal = name_some(findings.refusals)
        return Condition(names.RUNNING, True, reason, f"{text}; {refusal}" if refusal else text)
    if findings.schedule.retry_time is not None:
        text = findings.schedule.explain(job)
        return Condition(names.RUNNING, False, names.SCHEDULE_TIMEOUT, text)
    budget = findings.budget
    if observed.now < budget.backoff_until and budget.last is not None:
        text = f"restarting after {_which_failure(job, budget)}; {budget.last}"
        return Condition(names.RUNNING, False, names.BACKING_OFF, text)
    if findings.restarting.under_way:
        text = findings.restarting.explain()
        return Condition(names.RUNNING, False, names.GROUP_RESTARTED, text)
    text = f"{ready} of {findings.target.wanted} workers are ready; training needs {job.minimum}"
    text = f"{text}; {shortage}" if shortage else text
    return Condition(names.RUNNING, False, names.WAITING_FOR_WORKERS, text)


def _which_failure(job: Job, budget: Budget) -> str:
    rule = budget.last.rule if budget.last else None
    if rule is not None and rule.action is not FailureAction.COUNT:
        return f"a failure that {rule} does not count"
    return f"failure {budget.failures} of {job.max_failures} allowed"


def _state(job: Job, status: Status, trains: bool) -> str:
    if has_ended(status):
        return names.COMPLETE if is_true(status, names.COMPLETE) else names.FAILED
    if job.suspend:
        return names.SUSPENDED if is_true(status, names.SUSPENDED) else names.SUSPENDING
    if not trains:
        return "Pending"
    return names.RESIZING if is_true(status, names.RESIZING) else names.RUNNING


def describe_progress(agents: Sequence[AgentView], old: Mapping[str, Any]) -> dict[str, Any]:
    """While agents report nothing, as after a change of the group, `old` stays."""
    reports = [agent.progress for agent in agents if agent.progress.step is not None]
    if not reports:
        return dict(old)
    newest_first = sorted(reports, key=lambda progress: -(progress.step or 0))
    newest = newest_first[0]
    speeds = [a.steps_per_second for a in agents if a.steps_per_second is not None]
    steps = (agent.progress.checkpoint_step for agent in agents)
    checkpoints = [step for step in steps if step is not None]
    found: dict[str, Any] = {"summary": f"{newest.step}", "step": newest.step}
    if newest.total is not None:
        found |= {"summary": f"{newest.step}/{newest.total}", "total": newest.total}
    if newest.loss is not None:
        found["loss"] = f"{newest.loss:.4g}"
    if metrics := _metrics(newest_first, old.get("metrics") or {}):
        found["metrics"] = metrics
    if speeds:
        found["stepsPerSecond"] = f"{max(speeds):.3g}"
    if checkpoints:
        found["checkpointStep"] = max(checkpoints)
    return found


def _metrics(newest_first: Sequence[Progress], old: Mapping[str, str]) -> dict[str, str]:
    """The newest value of each metric; those of the group come before those of the status alone."""
    known: dict[str, str] = {}
    for progress in newest_first:
        for name, value in progress.metrics:
            known.setdefault(name, f"{value:.6g}")
    for name, text in old.items():
        known.setdefault(name, text)
    return {name: known[name] for name in sorted(list(known)[:MAX_METRICS])}
