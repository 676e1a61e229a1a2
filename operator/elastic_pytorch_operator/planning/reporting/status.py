"""What a job's status should say. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import (
    Condition,
    ended,
    find_condition,
    has_ended,
    is_true,
    merge_conditions,
    not_ended,
)
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
from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.failed_writes import MAX_REPORTED, explain_refusals
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.group_restart import NO_RESTART, GroupRestart
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED, FailedStarts
from elastic_pytorch_operator.planning.nodes.evacuation import NO_EVACUATION, Evacuation
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.reporting.failing_saves import (
    explain_unsaved_steps,
    with_failing_saves,
)
from elastic_pytorch_operator.planning.reporting.history import add_changes, count_interruptions
from elastic_pytorch_operator.planning.reporting.ignored_fields import with_ignored_fields
from elastic_pytorch_operator.planning.reporting.interruption import NO_INTERRUPTIONS, Interruptions
from elastic_pytorch_operator.planning.reporting.missing_workers import (
    explain_shortage,
    may_train,
    unheard_group,
)
from elastic_pytorch_operator.planning.reporting.quota_conditions import (
    explain_lack,
    held,
    reason_of,
)
from elastic_pytorch_operator.planning.reporting.stragglers import NO_STRAGGLERS, Stragglers
from elastic_pytorch_operator.planning.reporting.waits import (
    explain_deferral,
    explain_evacuation,
    explain_growth_wait,
    explain_restart,
    explain_schedule_wait,
)
from elastic_pytorch_operator.planning.reporting.worker_list import describe_workers
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import NO_DEFERRAL, Deferral
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
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
    deferral: Deferral = NO_DEFERRAL
    cooling: Sequence[str] = ()  # newcomers that wait as the group has just grown
    restarting: GroupRestart = NO_RESTART
    grown: bool = False  # by the round that is declared now
    starts: FailedStarts = NONE_FAILED
    evacuation: Evacuation = NO_EVACUATION
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
    """The whole status of a job that has not ended before."""
    budget, current, ending = findings.budget, findings.interruptions.current, findings.ending
    old = job.status
    live = [c for c in candidates if c.liveness in (Liveness.READY, Liveness.STARTING)]
    ready = [c for c in live if c.liveness is Liveness.READY and c.worker not in findings.torn]
    ready_spares = count_spares(job, findings.target, len(ready))
    members = round_.ranks if round_ else {}
    agents = [observed.agents[name] for name in members if name in observed.agents]
    paused = findings.restarting.asked or (
        observed.now < budget.backoff_until and any(candidate.failed for candidate in live)
    )
    size = 0 if paused or round_ is None else round_.size
    unheard = may_train(old, live, size) and not findings.target.stopped
    trains = (bool(members) and ending is None and not paused) or unheard
    workers, newest_pod_time = describe_workers(
        candidates, job, observed, round_, findings.target.size, findings.torn
    )
    grown_time = observed.time if findings.grown else read_operator_state(old).last_growth_time
    open_ = current.as_state() if current is not None and ending is None else {}
    state = OperatorState(findings.schedule.timeouts, grown_time, newest_pod_time, open_)
    status: Status = {
        "observedGeneration": job.generation,
        "replicas": len(live) - count_spares(job, findings.target, len(live)),
        "readyReplicas": len(ready) - ready_spares,
        "selector": f"{names.LABEL_JOB_NAME}={job.key.name},{names.LABEL_ROLE}={names.ROLE_WORKER}",
        "round": round_.number if round_ else int(old.get("round", 0)),
        "worldSize": int(old.get("worldSize", 0))
        if unheard
        else 0
        if paused
        else world_size(round_, agents, job),
        "failures": budget.failures,
        "totalFailures": budget.total,
        **workers,
        **state.as_status(),
    }
    if not findings.target.stopped:
        status["startTime"] = old.get("startTime") or observed.time
    if job.template_uid is not None:
        status["template"] = old["template"]
    if job.last_valid is not None:
        status[LAST_VALID] = recorded(job.last_valid)
    if job.spares:
        status["readySpares"] = ready_spares
    if budget.group_restarts:
        status["groupRestarts"] = budget.group_restarts
    if findings.refusals:
        status["refusals"] = [
            words[:MAX_REFUSAL_CHARACTERS] for words in findings.refusals[:MAX_REPORTED]
        ]
    if findings.stragglers.slow:
        status["stragglers"] = findings.stragglers.as_status()
    # Workers that leave report the last checkpoint, which they write in their grace period.
    reporting = agents or [agent for agent in observed.agents.values() if findings.target.stopped]
    if progress := describe_progress(reporting, old.get("progress") or {}):
        status["progress"] = progress
    history = add_changes(
        old.get(HISTORY) or (), findings.interruptions, round_, progress, observed.time
    )
    status |= {
        "interruptions": count_interruptions(history),
        **({HISTORY: history} if history else {}),
    }
    cause = (ending.cause if ending else None) or budget.last
    if cause is not None:
        status["rootCause"] = cause.as_status()
    elif old.get("rootCause"):
        status["rootCause"] = old["rootCause"]
    unsaved = explain_unsaved_steps(progress) if job.suspend else ""
    if ending is not None:
        told = ended(ending.reason, ending.message, complete=ending.complete)
        status |= {"completionTime": observed.time, "worldSize": 0}
    else:
        told = with_ignored_fields(
            _conditions(
                job, observed, live, round_, size, findings, unheard=unheard, unsaved=unsaved
            ),
            job,
        )
    status["conditions"] = merge_conditions(
        old, told, generation=job.generation, time=observed.time
    )
    status["state"] = _state(job, status, trains)
    return status


def count_spares(job: Job, target: Target, workers: int) -> int:
    """How many of some workers are beyond the wanted ones, whichever they are."""
    return 0 if target.stopped else min(job.spares, max(0, workers - target.size))


def world_size(round_: Round | None, agents: Sequence[AgentView], job: Job) -> int:
    if round_ is None:
        return 0
    return round_.size * processes_of_a_worker(agents, job)


def processes_of_a_worker(agents: Iterable[AgentView], job: Job) -> int:
    processes = max((agent.local_world_size for agent in agents), default=0)
    return processes or (int(job.nproc_per_node) if job.nproc_per_node.isdigit() else 1)


def _conditions(
    job: Job,
    observed: Observed,
    live: Sequence[Candidate],
    round_: Round | None,
    size: int,
    findings: Findings,
    *,
    unheard: bool,
    unsaved: str,
) -> list[Condition]:
    target, refusal = findings.target, explain_refusals(findings.refusals)
    waiting, cooling = (
        explain_deferral(job, findings.deferral),
        explain_growth_wait(job, findings.cooling),
    )
    if job.suspend:
        return [*_suspended(job, observed, size, waiting, refusal, unsaved), *not_ended()]
    if target.held:
        why = "; ".join(filter(None, (explain_lack(target.quota), job.problem)))
        return [
            *held(reason_of(target.quota), why, observed, size, waiting, refusal),
            _not_suspended(job),
            *not_ended(),
        ]
    if job.problem and target.stopped:
        why = f"waits for a valid spec: {job.problem}"
        return [
            *held(names.INVALID_SPEC, why, observed, size, waiting, refusal),
            _as_before(job),
            *not_ended(),
        ]
    if unheard:
        return [*unheard_group(live), _not_suspended(job), *not_ended()]
    apart = explain_difference(round_.ranks if round_ else (), live, observed.pods_by_name)
    speaking = {pod.name for pod in observed.pods if pod.started} if job.stock else observed.agents
    preparing = {
        name for name, agent in observed.agents.items() if agent.state is AgentState.PREPARING
    }
    pods = (*observed.pods, *observed.stores)
    missing = explain_shortage(pods, speaking, refusal, findings.starts, preparing, findings.torn)
    shortage = "; ".join(filter(None, (apart, missing, explain_lack(target.quota))))
    running = _running(job, observed, live, size, findings, shortage)
    whole = f"all {target.wanted} wanted workers train" if size == target.wanted else ""
    if whole and job.requested != target.wanted:
        whole += f"; {job.requested} were requested, which {job.rounded_by} rounds down"
    calm = (
        Condition(names.RESIZING, False, names.AT_WANTED_SIZE, whole)
        if size
        else _nothing_trains(names.RESIZING)
    )
    resizing, degraded = calm, replace(calm, type=names.DEGRADED)
    if size and size != target.wanted:
        word = "growing" if size < target.wanted else "shrinking"
        resizing = Condition(
            names.RESIZING,
            True,
            names.SIZE_CHANGING,
            f"{word} from {size} to {target.wanted} workers",
        )
    if findings.evacuation.staying and size:
        leaving = explain_evacuation(findings.evacuation)
        text = f"{resizing.message}; {leaving}" if resizing.true else leaving
        resizing = Condition(names.RESIZING, True, names.NODE_ENDING, text)
    if findings.deferral.change is not None:
        text = f"{resizing.message}: {waiting}" if resizing.true else waiting
        resizing = Condition(names.RESIZING, True, names.WAITING_FOR_CHECKPOINT, text)
    if findings.cooling:
        resizing = Condition(
            names.RESIZING, True, names.COOLING_DOWN, f"{resizing.message}: {cooling}"
        )
    if size and size < target.wanted:
        text = f"trains with {size} of {target.wanted} workers"
        reason = (
            reason_of(target.quota)
            if target.quota.lack and size == target.quota.size
            else names.WORKERS_MISSING
        )
        degraded = Condition(
            names.DEGRADED, True, reason, "; ".join(filter(None, (text, shortage, cooling)))
        )
    degraded = with_failing_saves(degraded, job, observed, round_ if size else None)
    if job.problem:
        text = f"{job.problem}; the job goes on by its last valid spec"
        message = f"{text}; {degraded.message}" if degraded.true else text
        degraded = Condition(names.DEGRADED, True, names.INVALID_SPEC, message)
    return [running, resizing, degraded, _not_suspended(job), *not_ended()]


def _running(
    job: Job,
    observed: Observed,
    live: Sequence[Candidate],
    size: int,
    findings: Findings,
    shortage: str,
) -> Condition:
    if size:
        text, reason = f"{size} of {findings.target.wanted} workers train", names.ROUND_RUNNING
        if observed.saving_since is not None:
            text, reason = (
                "the training is done, and its last checkpoint is being written",
                names.SAVING,
            )
        refusal = explain_refusals(findings.refusals)
        return Condition(names.RUNNING, True, reason, f"{text}; {refusal}" if refusal else text)
    if findings.schedule.retry_time is not None:
        return Condition(
            names.RUNNING,
            False,
            names.SCHEDULE_TIMEOUT,
            explain_schedule_wait(job, findings.schedule),
        )
    if observed.now < findings.budget.backoff_until and findings.budget.last is not None:
        return Condition(
            names.RUNNING,
            False,
            names.BACKING_OFF,
            f"restarting after {_which_failure(job, findings.budget)}; {findings.budget.last}",
        )
    if findings.restarting.under_way:
        return Condition(
            names.RUNNING, False, names.GROUP_RESTARTED, explain_restart(findings.restarting)
        )
    ready = sum(c.liveness is Liveness.READY and c.worker not in findings.torn for c in live)
    ready -= count_spares(job, findings.target, ready)
    text = f"{ready} of {findings.target.wanted} workers are ready; training needs {job.minimum}"
    return Condition(
        names.RUNNING, False, names.WAITING_FOR_WORKERS, f"{text}; {shortage}" if shortage else text
    )


def _which_failure(job: Job, budget: Budget) -> str:
    rule = budget.last.rule if budget.last else None
    if rule is not None and rule.action is not FailureAction.COUNT:
        return f"a failure that {rule} does not count"
    return f"failure {budget.failures} of {job.max_failures} allowed"


def _suspended(
    job: Job, observed: Observed, size: int, waiting: str, refusal: str, unsaved: str
) -> list[Condition]:
    """A suspended group may wait for a checkpoint, and its pods take time to stop.

    Only without quota is the job suspended: until then, fields for its pods may not change.
    """
    left = len(observed.pods) + len(observed.stores)
    reserves = any(w.reserves and not w.is_true(kueue.FINISHED) for w in observed.workloads or ())
    stays = left or reserves
    reason = names.SUSPENDING if stays else names.REFUSED if refusal else names.JOB_SUSPENDED
    if job.problem:
        reason, refusal = names.SUSPENDING if stays else names.INVALID_SPEC, job.problem
    pods = f"{left} {'pod is' if left == 1 else 'pods are'} left" if left else "nothing runs"
    does = waiting or ("its quota is not returned yet" if reserves and not left else pods)
    text = "; ".join(
        filter(None, (f"spec.suspend is true: {does}", refusal, "" if left else unsaved))
    )
    rests = names.SUSPENDING if stays else names.JOB_SUSPENDED
    running, resizing, degraded = (
        Condition(type_, False, rests, "the job is suspended")
        for type_ in (names.RUNNING, names.RESIZING, names.DEGRADED)
    )
    if size:
        running = Condition(
            names.RUNNING,
            True,
            names.ROUND_RUNNING,
            f"{size} workers train until the job is suspended",
        )
    return [running, resizing, degraded, Condition(names.SUSPENDED, not stays, reason, text)]


def _not_suspended(job: Job) -> Condition:
    before = find_condition(job.status, names.SUSPENDED).get("reason", names.NOT_SUSPENDED)
    reason = names.NOT_SUSPENDED if before == names.NOT_SUSPENDED else names.JOB_RESUMED
    return Condition(names.SUSPENDED, False, reason, "the job is not suspended")


def _as_before(job: Job) -> Condition:
    """A job that was suspended is not resumed by an invalid spec."""
    if not is_true(job.status, names.SUSPENDED):
        return _not_suspended(job)
    before = find_condition(job.status, names.SUSPENDED)
    return Condition(names.SUSPENDED, True, str(before.get("reason")), str(before.get("message")))


def _nothing_trains(type_: str) -> Condition:
    return Condition(
        type_, False, names.WAITING_FOR_WORKERS, "no group is training yet; see condition Running"
    )


def _state(job: Job, status: Status, trains: bool) -> str:
    if has_ended(status):
        return names.COMPLETE if is_true(status, names.COMPLETE) else names.FAILED
    if job.suspend:
        return names.SUSPENDED if is_true(status, names.SUSPENDED) else names.SUSPENDING
    if not trains:
        return "Pending"
    return names.RESIZING if is_true(status, names.RESIZING) else names.RUNNING


def describe_progress(agents: Sequence[AgentView], old: Mapping[str, Any]) -> dict[str, Any]:
    """The field; empty: the script has never reported a step.

    While agents report nothing, as after a change of the group, `old` stays.
    """
    reports = [agent.progress for agent in agents if agent.progress.step is not None]
    if not reports:
        return dict(old)
    newest_first = sorted(reports, key=lambda progress: -(progress.step or 0))
    newest = newest_first[0]
    speed = max(
        (agent.steps_per_second for agent in agents if agent.steps_per_second is not None),
        default=None,
    )
    checkpoints = [
        a.progress.checkpoint_step for a in agents if a.progress.checkpoint_step is not None
    ]
    found: dict[str, Any] = {"summary": f"{newest.step}", "step": newest.step}
    if newest.total is not None:
        found |= {"summary": f"{newest.step}/{newest.total}", "total": newest.total}
    if newest.loss is not None:
        found["loss"] = f"{newest.loss:.4g}"
    if metrics := _metrics(newest_first, old.get("metrics") or {}):
        found["metrics"] = metrics
    if speed is not None:
        found["stepsPerSecond"] = f"{speed:.3g}"
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
