"""The PodGroup of a job: there before its pods are, with the job's minimum; gone while the job is suspended, and once it has ended."""

from dataclasses import dataclass

from elastic_pytorch_operator.model.actions import Action, DeletePodGroup, PutPodGroup
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failed_writes import POD_GROUP, FailedWrites
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class PodGroupPlan:
    actions: tuple[Action, ...] = ()
    holds_pods: bool = False  # no pod may be made, because the PodGroup cannot be


def plan_pod_group(job: Job, target: Target | None, observed: Observed, failed: FailedWrites) -> PodGroupPlan:
    """Decides what to do about a job's PodGroup.

    Pods wait only for the first write. While a group trains the PodGroup was there when it formed, and a lost worker is replaced at once.

    Args:
        target: None: the job has ended.
    """
    if job.scheduling.gang is None:
        return PodGroupPlan()
    if target is None or target.stopped:
        over = target is None or not (observed.pods or observed.stores)
        return PodGroupPlan((DeletePodGroup(),) if over and observed.pod_group_minimum != 0 else ())
    if observed.pod_group_minimum == job.minimum:
        return PodGroupPlan()
    there = bool(observed.pod_group_minimum) or (observed.round is not None and observed.round.size > 0)
    put = PutPodGroup(before_pods=not there, without_pods=not (observed.pods or observed.stores))
    return PodGroupPlan((put,), holds_pods=not there and POD_GROUP in failed)
