"""By which Workload's quota each new pod runs, and which pods run by none any more."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from elastic_pytorch_operator.model.actions import Action, CreatePod
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.workload import BASE, Grant
from elastic_pytorch_operator.planning.queueing.quota import Quota, holding_pods, is_matched, workloads_of_unseen_pods
from elastic_pytorch_operator.spec.job import Job


def grant_pods(observed: Observed, quota: Quota, actions: Iterable[Action]) -> list[Action]:
    """Gives each pod that is to be created a place in a Workload that has room: the base is filled first.

    A pod whose creation is on its way keeps its place, and is not asked for again.
    """
    if not quota.limited:
        return list(actions)
    there = (pod.workload for pod in holding_pods(observed) if not pod.deleting)
    used = Counter((*there, *workloads_of_unseen_pods(observed)))
    places = [
        Grant(workload.name, workload.queue, workload.admission, extra=workload.number != BASE)
        for workload in quota.usable
        if workload.admission is not None
        for _ in range(max(0, workload.granted - used[workload.name]))
    ]
    granted: list[Action] = []
    for action in actions:
        if not isinstance(action, CreatePod):
            granted.append(action)
        elif places and action.index not in observed.being_created:
            granted.append(replace(action, grant=places.pop(0)))
    return granted


def displaced_pods(job: Job, observed: Observed, quota: Quota) -> frozenset[str]:
    """The pods that are matched with a Workload by which they may no longer run."""
    if not quota.limited:
        return frozenset()
    usable = {workload.name for workload in (*quota.usable, *quota.staying)}
    matched = (pod for pod in observed.pods if is_matched(pod, job))
    return frozenset(pod.name for pod in matched if pod.workload not in usable and not pod.ended)
