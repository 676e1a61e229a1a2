"""The PodGroup of a job: there before its pods are, with the job's minimum; gone while the job is suspended, and once it has ended."""

from dataclasses import dataclass

from elastic_pytorch_operator.model.actions import Action, DeletePodGroup, PutPodGroup
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failed_writes import POD_GROUP, FailedWrites
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class PodGroupPlan:
    """What is to be done about a job's PodGroup.

    Attributes:
        actions: before any pod is made.
        holds_pods: no pod may be made, because the PodGroup cannot be.
    """

    actions: tuple[Action, ...] = ()
    holds_pods: bool = False


def plan_pod_group(job: Job, observed: Observed, failed: FailedWrites, *, ended: bool = False) -> PodGroupPlan:
    """Decides what to do about a job's PodGroup.

    While a group trains, pods do not wait for the PodGroup: it was there when the group formed, and a lost worker is replaced at once.

    Args:
        job: says which PodGroup it has, and its minimum.
        observed: what is known of it, and the group.
        failed: the writes that have failed.
        ended: the job has ended.
    """
    if job.scheduling.gang is None:
        return PodGroupPlan()
    if job.suspend or ended:
        over = ended or not (observed.pods or observed.stores)
        return PodGroupPlan((DeletePodGroup(),) if over and observed.pod_group_minimum != 0 else ())
    if observed.pod_group_minimum == job.minimum:
        return PodGroupPlan()
    trains = observed.round is not None and observed.round.size > 0
    return PodGroupPlan((PutPodGroup(before_pods=not trains),), holds_pods=not trains and POD_GROUP in failed)
