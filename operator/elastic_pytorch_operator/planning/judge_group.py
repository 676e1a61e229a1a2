"""What has become of a group that forms in rounds, and what that means for its job."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.completion import (
    Departures,
    Ending,
    active_since,
    deadline_at,
    decide_ending,
)
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
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.nodes.objections import failed_again
from elastic_pytorch_operator.planning.plan_workers import WorkerPlan, plan_workers
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class Judgement:
    workers: WorkerPlan
    memory: Memory
    failure: RoundFailure
    stall: Stall | None  # the group restarts for it now
    dump_stacks: bool
    restarting: GroupRestart
    ending: Ending | None
    recheck_at: float | None


def judge_group(job: Job, target: Target, observed: Observed, memory: Memory) -> Judgement:
    stall, stall_recheck = find_stall(job, observed, memory.stall)
    dump_stacks = stall is not None and (memory.stall is None or stall.round != memory.stall.round)
    restart = stall if stall is not None and observed.now >= stall.restart_at else None
    workers = plan_workers(job, target, observed, memory)
    candidates, victims = workers.candidates, workers.replicas.victims
    failure = judge_round(observed, candidates, failed_again(workers.objections))
    leaving = leaving_members(observed, candidates, memory.departures.leaving, victims)
    pods = judge_pods(observed, candidates, job.rules, ended_pods(observed), victims, leaving)
    excused = excused_members(observed, memory.departures.excused, pods, leaving)
    since = active_since(target, observed.now, memory.moments.active_since)
    memory = replace(
        memory,
        answers=memory.answers.about(job.generation),
        nodes=workers.objections,
        schedule=workers.schedule,
        stall=stall,
        departures=Departures(victims, excused, leaving),
        moments=replace(memory.moments, active_since=since),
        budget=_count_failures(job, observed, memory.budget, failure, pods, restart),
    )
    ending, ending_recheck = decide_ending(
        job,
        target,
        observed,
        candidates,
        memory.budget,
        memory.departures,
        invalid=memory.answers.invalid,
        deadline_at=deadline_at(job, memory.moments.active_since),
        starts=workers.starts,
    )
    restarting = find_group_restart(job, observed, memory.budget)
    rechecks = (workers.evacuation.recheck_at, workers.schedule.recheck_at)
    recheck = earliest(stall_recheck, ending_recheck, *rechecks)
    return Judgement(workers, memory, failure, restart, dump_stacks, restarting, ending, recheck)


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
