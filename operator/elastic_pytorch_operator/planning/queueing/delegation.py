"""What a job needs on a cluster whose Kueue has other clusters run it (MultiKueue): one Workload, and no pod.

From Kueue v0.19.2, pkg/controller/admissionchecks/multikueue: its controller copies the Workload and the job to a worker cluster, and
the whole status of that copy back. The operator that made the Workload reports from that status when pods are ready, and gives quota
back after an eviction. A change of the spec of a Workload that holds quota would have the copy deleted, so its count stays.
"""

from dataclasses import dataclass

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.conditions import has_ended
from elastic_pytorch_operator.model.actions import CreateWorkload, DeleteWorkload, WorkloadAction
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.workload import BASE, WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import find_quota
from elastic_pytorch_operator.planning.queueing.workload_conditions import report_readiness
from elastic_pytorch_operator.planning.queueing.workloads import reconcile_base
from elastic_pytorch_operator.spec.job import Job

# For workers to stop on a cluster that can be reached. Of one that is lost, the last status never changes.
STOP_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Delegation:
    """What is to be done about the Workload of a job that runs on another cluster.

    Attributes:
        actions: nothing else is written for the job.
        recheck_at: when to decide again without any event, monotonic seconds; None: never.
    """

    actions: tuple[WorkloadAction, ...] = ()
    recheck_at: float | None = None


NOTHING = Delegation()


def delegate(job: Job, observed: Observed) -> Delegation:
    """Decides about the Workload of a job that MultiKueue manages; for any other job, nothing is done.

    Once the job has ended, Kueue finishes the Workload as that of the copy is.
    """
    if job.managed_by != kueue.MULTIKUEUE or observed.workloads is None or has_ended(job.status):
        return NOTHING
    base = next((workload for workload in observed.workloads if workload.number == BASE), None)
    if base is None:
        return Delegation((CreateWorkload(BASE, job.minimum),) if job.wanted and job.queue else ())
    if base.deleting or base.is_true(kueue.FINISHED):
        return NOTHING
    if not job.wanted or job.queue is None or base.queue != job.queue.name:
        return Delegation((DeleteWorkload(base.name, base.uid, "it is no longer wanted"),))
    running, until = _still_running(job, base, observed.now)
    if base.granted:
        return Delegation(tuple(report_readiness((base,), int(job.status.get("readyReplicas", 0)), observed.time)))
    quota = find_quota(job, min(job.wanted, job.minimum), observed)
    return Delegation(tuple(reconcile_base(job, quota, base, running, observed.time)), until)


def _still_running(job: Job, base: WorkloadView, now: float) -> tuple[int, float | None]:
    """How many pods of the copy still run after an eviction, and when they count no more, monotonic seconds."""
    if base.evicted_since is None or now >= base.evicted_since + STOP_SECONDS:
        return 0, None
    running = int(job.status.get("replicas", 0))
    return running, base.evicted_since + STOP_SECONDS if running else None
