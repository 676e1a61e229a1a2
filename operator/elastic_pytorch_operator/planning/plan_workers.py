"""What becomes of each worker of a group that forms in rounds, and which pods come and go."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_pytorch_operator.model.actions import (
    Action,
    CreatePod,
    CreateService,
    DeletePod,
    TryPod,
)
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.failed_writes import wants_dry_run
from elastic_pytorch_operator.planning.failures.group_restart import (
    GroupRestart,
    group_restarts,
    outdated_pods,
)
from elastic_pytorch_operator.planning.failures.start_backoff import (
    FailedStarts,
    find_failed_starts,
)
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.nodes.evacuation import Evacuation, plan_evacuation
from elastic_pytorch_operator.planning.nodes.objections import (
    SUSPECTED,
    Objections,
    displaced_workers,
    find_objections,
    nodes_of,
)
from elastic_pytorch_operator.planning.nodes.placement import misled_pods, nodes_to_avoid
from elastic_pytorch_operator.planning.queueing.quota import Target, displaced_pods
from elastic_pytorch_operator.planning.workers.liveness import (
    Candidate,
    assess_workers,
    without_victims,
)
from elastic_pytorch_operator.planning.workers.schedule_timeout import (
    ScheduleWait,
    give_back,
    judge_schedule,
)
from elastic_pytorch_operator.planning.workers.worker_pods import (
    Going,
    Replicas,
    free_indices,
    plan_pod_group,
    plan_replicas,
)
from elastic_pytorch_operator.spec.job import FAIL_JOB, Job


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    candidates: Sequence[Candidate]
    objections: Objections
    starts: FailedStarts
    evacuation: Evacuation
    schedule: ScheduleWait
    replicas: Replicas


def plan_workers(job: Job, target: Target, observed: Observed, memory: Memory) -> WorkerPlan:
    suspected = nodes_of(memory.nodes, SUSPECTED)
    candidates = assess_workers(observed, {name: each.since for name, each in suspected.items()})
    starts = find_failed_starts(observed)
    objections = find_objections(job, observed, candidates, starts, memory.nodes)
    evacuation = plan_evacuation(job, target, observed, candidates, objections)
    schedule = judge_schedule(job, target, observed, candidates, memory.schedule)
    going = Going(
        outdated=outdated_pods(job, observed),
        displaced={
            *displaced_pods(job, observed, target.quota),
            *displaced_workers(objections, observed),
        },
        misled=misled_pods(observed, objections),
        staying=evacuation.staying,
        leaving=evacuation.leaving,
        doubted={each.node for each in objections},
    )
    replicas = plan_replicas(job, target, observed, candidates, going)
    replicas = give_back(replicas, schedule, observed)
    candidates = without_victims(candidates, replicas.victims, evacuation.leaving)
    return WorkerPlan(candidates, objections, starts, evacuation, schedule, replicas)


def missing_pods(
    job: Job, target: Target, observed: Observed, memory: Memory
) -> tuple[Action, ...]:
    """Pods that a new leader can create for free indices before any agent has reported."""
    ending = any(agent.state is AgentState.SUCCEEDED for agent in observed.agents.values())
    taken = {pod.index for pod in observed.pods if not pod.deleting}
    gang = plan_pod_group(job, target, observed, memory.answers.failed)
    pauses = observed.now < max(memory.budget.backoff_until, memory.schedule.retry_at)
    if ending or job.on_pod_loss == FAIL_JOB or pauses or gang.holds_pods:
        return gang.actions
    missing = free_indices(taken, target.pods - len(taken), job.unit_replicas)
    apart = missing[max(0, target.size - len(taken)) :]
    restarts = group_restarts(job)
    creates = (CreatePod(i, group_restarts=restarts, apart=i in apart) for i in missing)
    return (*gang.actions, *creates)


def pod_actions(
    job: Job,
    target: Target,
    observed: Observed,
    workers: WorkerPlan,
    round_: Round | None,
    memory: Memory,
    restarting: GroupRestart,
) -> list[Action]:
    replicas, starts = workers.replicas, workers.starts
    gang = plan_pod_group(job, target, observed, memory.answers.failed)
    actions: list[Action] = [*gang.actions, *([] if observed.service_exists else [CreateService()])]
    backing_off = {index for index, until in starts.backoff_until.items() if observed.now < until}
    held = restarting.asked or gang.holds_pods or observed.now < memory.budget.backoff_until
    if replicas.create and not held:
        avoided = {
            extra: nodes_to_avoid(observed, job.template_of(extra=extra), workers.objections)
            for extra in {job.is_extra(index) for index in replicas.create}
        }
        actions += [
            CreatePod(
                index,
                avoided[job.is_extra(index)].never,
                unwanted=avoided[job.is_extra(index)].unwanted,
                failed_starts=starts.nodes.get(index, ()),
                group_restarts=group_restarts(job),
                apart=index in replicas.apart,
            )
            for index in replicas.create
            if index not in backing_off
        ]
    if not replicas.create and wants_dry_run(job, target, observed, memory.answers):
        actions.append(TryPod())
    # The round may have workers that have not reported to this leader, unless it stops all.
    unheard = {c.worker for c in workers.candidates if c.unheard and not target.stopped}
    members = unheard.union(round_.ranks if round_ else ())
    for name in sorted(replicas.victims):
        if name not in members:
            actions.append(DeletePod(name, observed.pods_by_name[name].uid, "is no longer wanted"))
    # They stay until their replacements, which take over their counts, are made.
    remembers = {pod.name for index, pod in starts.newest.items() if index in backing_off}
    for pod in replicas.discard:
        if pod.name not in members and pod.name not in remembers:
            actions.append(DeletePod(pod.name, pod.uid, "no longer serves"))
    for pod in replicas.abandon:
        if pod.name not in members:
            why = f"was on node {pod.node}, which is lost"
            force = observed.on_removed_node(pod)
            actions.append(DeletePod(pod.name, pod.uid, why, force=force))
    return actions
