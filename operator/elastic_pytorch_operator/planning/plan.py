"""Decides everything about one job at one moment."""

from dataclasses import replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import has_ended, is_true
from elastic_pytorch_operator.api.times import earliest, seconds_between
from elastic_pytorch_operator.model.actions import Action, DeleteJob, DeletePod
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan_rounds import plan_rounds
from elastic_pytorch_operator.planning.plan_stock import plan_stock
from elastic_pytorch_operator.planning.queueing.quota import Target, find_quota
from elastic_pytorch_operator.planning.queueing.workloads import (
    finish_workloads,
    grant_pods,
    plan_workloads,
)
from elastic_pytorch_operator.planning.reporting.events import record_refusals, record_unreadable
from elastic_pytorch_operator.planning.stock.rendezvous import delete_stores
from elastic_pytorch_operator.planning.workers.worker_pods import plan_pod_group
from elastic_pytorch_operator.spec.job import Job

EXIT_SECONDS = 10.0  # what agents get to exit by themselves once the job has ended


def plan(job: Job, observed: Observed, memory: Memory) -> Plan:
    """Decides what to do for a job now; once that is done, it asks for nothing more."""
    if job.deleting or not job.ours:
        return Plan(memory)  # the garbage collector removes what a deleted job owns
    if has_ended(job.status):
        return _plan_ended(job, observed, memory)
    todo = _plan_training(job, observed, memory)
    if observed.unreadable == memory.answers.unreadable:
        return todo
    events = record_unreadable(observed.unreadable, memory.answers.unreadable)
    answers = replace(todo.memory.answers, unreadable=observed.unreadable)
    memory = replace(todo.memory, answers=answers)
    return replace(todo, actions=(*todo.actions, *events), memory=memory)


def _plan_training(job: Job, observed: Observed, memory: Memory) -> Plan:
    quota, round_ = find_quota(job, observed), observed.round
    target = Target(job.wanted, quota, job.spares)
    if job.stock:
        todo = plan_stock(job, target, observed, memory)
    else:
        if round_ and round_.size == 0 and round_.number < int(job.status.get("round", 0)):
            # Stock torchrun has formed the groups since then: the job was suspended in between.
            observed = replace(observed, round=None)
        todo = plan_rounds(job, target, observed, memory)
    if observed.workloads is None and not quota.limited:
        return todo
    pods = grant_pods(observed, quota, todo.actions)
    recheck = earliest(todo.recheck_at, quota.recheck_at)
    actions = (*pods, *plan_workloads(job, observed, quota, pods))
    return replace(todo, actions=actions, recheck_at=recheck)


def _plan_ended(job: Job, observed: Observed, memory: Memory) -> Plan:
    ended_at = observed.now if memory.ended_at is None else memory.ended_at
    actions, recheck = clean_up(job, observed, ended_at)
    verdict = "complete" if is_true(job.status, names.COMPLETE) else "failed"
    actions += record_refusals(memory.answers.unreported)
    actions += plan_pod_group(job, None, observed, memory.answers.failed).actions
    actions += delete_stores(observed, keep=0, why="the job has ended")
    actions += finish_workloads(job, observed)
    memory = replace(memory, ended_at=ended_at, answers=memory.answers.reported())
    return Plan(memory, verdict=verdict, actions=tuple(actions), recheck_at=recheck)


def clean_up(job: Job, observed: Observed, ended_at: float) -> tuple[list[Action], float | None]:
    recheck, exit_by, policy = None, ended_at + EXIT_SECONDS, job.clean_pod_policy
    if job.ttl_seconds is not None:
        completed = str(job.status.get("completionTime", observed.time))
        left = job.ttl_seconds - seconds_between(completed, observed.time)
        if left <= 0:
            return [DeleteJob()], None
        recheck = observed.now + left
    actions: list[Action] = []
    for pod in observed.pods:
        if pod.deleting:
            continue
        goes, why = policy != "None", "the job has ended"
        if pod.ended:
            goes = policy == "All" or (policy == "Running" and pod.lingers)
        elif not pod.started and pod.name not in observed.agents:
            goes, why = True, "the job has ended before it started"
        elif observed.now < exit_by:
            goes, recheck = False, earliest(recheck, exit_by)
        if goes:
            actions.append(DeletePod(pod.name, pod.uid, why))
    return actions, recheck
