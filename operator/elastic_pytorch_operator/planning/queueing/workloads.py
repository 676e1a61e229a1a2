"""Which Workloads of a job are created, changed and deleted, and by which each new pod runs.

That depends only on what there is. Quota is given back when the pods that use it are gone: Kueue
may grant it to another job at once.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.conditions import is_true
from elastic_pytorch_operator.api.names import COMPLETE
from elastic_pytorch_operator.model.actions import (
    Action,
    CreatePod,
    CreateWorkload,
    DeleteWorkload,
    PatchWorkload,
    ResizeWorkload,
    WorkloadAction,
)
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.model.workload import BASE, Grant, WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import (
    Quota,
    holding_pods,
    is_for,
    is_matched,
    takes_flavors,
    workloads_of_unseen_pods,
)
from elastic_pytorch_operator.planning.queueing.workload_conditions import (
    release,
    report_readiness,
    set_condition,
)
from elastic_pytorch_operator.spec.job import Job

MAX_PENDING_EXTRAS = 4  # of a job: Kueue tries each of them after every change of its queue
ENDED = "the job has ended"


def plan_workloads(
    job: Job, observed: Observed, quota: Quota, pods: Iterable[Action] = ()
) -> list[WorkloadAction]:
    """`pods`: what the same plan does, with their grants."""
    if observed.workloads is None:
        return []
    if not quota.limited:
        there = (w for w in observed.workloads if not w.deleting)
        return [DeleteWorkload(w.name, w.uid, "the job is in no queue") for w in there]
    holding = holding_pods(observed)
    base, kept = quota.base, set[int]()
    if base is not None and job.wanted and is_for(base, job) and not base.is_true(kueue.FINISHED):
        kept = {BASE, *(extra.number for extra in quota.fitting if _serves(extra))}
    surplus = [w for w in observed.workloads if w.number not in kept and not w.deleting]
    unseen = workloads_of_unseen_pods(observed, pods)
    using = len(holding) + len(unseen)
    actions = _give_back(job, surplus, holding, unseen, quota, observed.time)
    if base is None:
        if job.queue and job.wanted and not using:
            actions.append(CreateWorkload(BASE, job.minimum))
        return actions
    if kept:
        actions += _reconcile_base(job, quota, base, using, observed.time)
    if quota.usable:
        actions += _ask_for_extras(job, observed.workloads, quota, base)
        # After a resize, workers count for other Workloads.
        if not any(isinstance(action, ResizeWorkload) for action in actions):
            ready = int(job.status.get("readyReplicas", 0)) + int(job.status.get("readySpares", 0))
            running = None
            if job.extras_choose_flavors or any(is_matched(pod, job) for pod in observed.pods):
                running = Counter(
                    pod.workload
                    for pod in observed.pods
                    if pod.started and not (pod.ended or pod.deleting)
                )
            actions += report_readiness(quota.usable, ready, observed.time, running)
    return actions


def grant_pods(observed: Observed, quota: Quota, actions: Iterable[Action]) -> list[Action]:
    """Gives each pod that is to be created a place in a Workload with room, the base first."""
    if not quota.limited:
        return list(actions)
    used = Counter(pod.workload for pod in holding_pods(observed))
    used.update(workloads_of_unseen_pods(observed))
    places = [
        Grant(workload.name, workload.queue, workload.admission, extra=workload.number != BASE)
        for workload in quota.usable
        if workload.admission is not None
        for _ in range(max(0, workload.granted - used[workload.name]))
    ]
    # Only numbers count: pods beyond what their Workload still holds take any places, the last
    # first.
    beyond = used - Counter({workload.name: workload.held for workload in observed.workloads or ()})
    del places[max(0, len(places) - beyond.total()) :]
    granted: list[Action] = []
    for action in actions:
        if not isinstance(action, CreatePod):
            granted.append(action)
        elif places and action.index not in observed.being_created:
            granted.append(replace(action, grant=places.pop(0)))
    return granted


def finish_workloads(job: Job, observed: Observed) -> list[WorkloadAction]:
    if not observed.workloads or observed.being_created or holding_pods(observed):
        return []
    actions: list[WorkloadAction] = []
    for workload in observed.workloads:
        if workload.deleting or workload.is_true(kueue.FINISHED):
            continue
        if workload.number != BASE:
            actions.append(DeleteWorkload(workload.name, workload.uid, ENDED))
        else:
            reason = kueue.SUCCEEDED if is_true(job.status, COMPLETE) else kueue.FAILED
            time = observed.time
            actions.append(set_condition(workload, kueue.FINISHED, True, reason, ENDED, time))
    return actions


def _serves(extra: WorkloadView) -> bool:
    """Whether an extra stays: a deactivated one asks for nothing, a released one queues again."""
    leaves = extra.active and extra.evicted and extra.reserves
    return not extra.is_true(kueue.FINISHED) and not leaves


def _give_back(
    job: Job,
    surplus: Iterable[WorkloadView],
    holding: Sequence[PodView],
    unseen: Sequence[str],
    quota: Quota,
    time: str,
) -> list[WorkloadAction]:
    """Deletes Workloads without quota at once, and the rest as their pods go, the base last.

    An extra that is evicted for another reason than preemption is released, or Kueue's own pause
    before its next try would be lost.
    """
    holders = sorted((w for w in surplus if w.reserves), key=lambda w: -w.number)
    actions: list[WorkloadAction] = [
        DeleteWorkload(w.name, w.uid, "it is no longer wanted") for w in surplus if not w.reserves
    ]
    needed = max(0, len(holding) + len(unseen) - quota.covered)
    left = sum(workload.held for workload in holders)
    # Pods of a Workload for another spec use no quota of the others.
    chosen = {workload.name for workload in holders if not is_for(workload, job)}
    fitting = {workload.name for workload in quota.fitting}
    placed = {
        *unseen,
        *(pod.workload for pod in holding if is_matched(pod, job) or pod.workload in chosen),
    }
    for workload in holders:
        if left - workload.held >= needed and workload.name not in placed:
            left -= workload.held
            waits = workload.evicted and workload.reason(kueue.EVICTED) != kueue.PREEMPTED
            if waits and workload.name in fitting:
                actions.append(release(workload, time))
            else:
                actions.append(DeleteWorkload(workload.name, workload.uid, "its pods are gone"))
    return actions


def _reconcile_base(
    job: Job, quota: Quota, base: WorkloadView, using: int, time: str
) -> list[WorkloadAction]:
    if base.deleting:
        return []
    if base.evicted and base.reserves:
        return [release(base, time)] if not using else []
    needed = job.minimum
    if not base.reserves:
        left_out = base.reason(kueue.REQUEUED).startswith(f"{kueue.DEACTIVATED}DueTo")
        if base.active and base.is_false(kueue.REQUEUED) and left_out:
            why = "it is active again, and Kueue leaves it out of its queue"
            return [DeleteWorkload(base.name, base.uid, why)]
        changes = base.count != needed
    else:
        needed = max(needed, using - (quota.covered - quota.base_size))
        # An extra of another flavor does not take the place of a worker of the base.
        changes = bool(quota.base_size) and needed < base.count and not job.extras_choose_flavors
    return [ResizeWorkload(base.name, base.version, needed)] if changes else []


def _ask_for_extras(
    job: Job, workloads: Sequence[WorkloadView], quota: Quota, base: WorkloadView
) -> list[WorkloadAction]:
    extras = [workload for workload in workloads if workload.number != BASE]
    actions: list[WorkloadAction] = [
        PatchWorkload(extra.name, extra.version, spec={"active": False})
        for extra in quota.fitting
        if extra.granted and not takes_flavors(extra, job, base)
    ]
    flavors = base.admission.flavors if base.admission and not job.extras_choose_flavors else ()
    there = {extra.number for extra in extras}
    numbers = range(1, len(quota.fitting) + len(quota.lacking) + 1)
    free = (number for number in numbers if number not in there)
    pending = sum(e.active and not e.granted and not e.evicted for e in extras)
    asked = islice(zip(free, quota.lacking, strict=False), max(0, MAX_PENDING_EXTRAS - pending))
    return actions + [CreateWorkload(number, count, flavors) for number, count in asked]
