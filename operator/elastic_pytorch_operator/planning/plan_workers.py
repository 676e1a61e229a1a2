"""What becomes of each worker of a group that the operator decides: which serve, which are to come, and which are to go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failures.device_faults import (
    DeviceFaults,
    displaced_by_faults,
    doubtful_nodes,
    find_device_faults,
)
from elastic_pytorch_operator.planning.failures.group_restart import outdated_pods
from elastic_pytorch_operator.planning.failures.start_backoff import FailedStarts, find_failed_starts
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.queueing.placement import displaced_pods
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.evacuation import Evacuation, plan_evacuation
from elastic_pytorch_operator.planning.workers.liveness import Candidate, assess_workers
from elastic_pytorch_operator.planning.workers.schedule_timeout import ScheduleWait, give_back, judge_schedule
from elastic_pytorch_operator.planning.workers.suspect_nodes import suspect_nodes
from elastic_pytorch_operator.planning.workers.worker_pods import Replicas, plan_replicas
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What becomes of each worker.

    Attributes:
        candidates: how each worker stands.
        suspects: nodes that have probably died, and since when that is suspected.
        starts: the pods that have failed to start.
        evacuation: who leaves a node that announces its end, or reports a fault.
        schedule: whether the job gives its places back for a while.
        replicas: which pods come and go.
        faults: devices that have failed workers.
        doubtful: nodes that new pods keep away from if others have room.
    """

    candidates: Sequence[Candidate]
    suspects: Mapping[str, float]
    starts: FailedStarts
    evacuation: Evacuation
    schedule: ScheduleWait
    replicas: Replicas
    faults: DeviceFaults
    doubtful: frozenset[str]

    @property
    def recheck_at(self) -> float | None:
        """When to decide again, in monotonic seconds; None: at the next event."""
        return earliest(self.evacuation.recheck_at, self.schedule.recheck_at)


def plan_workers(job: Job, target: Target, observed: Observed, memory: Memory) -> WorkerPlan:
    """Decides what becomes of each worker.

    Args:
        job: whose workers they are.
        target: how many it is to have, and by which quota.
        observed: the moment.
        memory: of the job.
    """
    candidates = assess_workers(observed, suspects=memory.suspects)
    suspects = suspect_nodes(memory.suspects, observed, candidates)
    starts = find_failed_starts(observed)
    faults = find_device_faults(memory.faults, observed)
    avoided = {*suspects, *starts.avoid, *doubtful_nodes(faults, observed)}
    outdated = outdated_pods(job, observed)
    evacuation = plan_evacuation(job, target, observed, candidates, memory.ending)
    schedule = judge_schedule(job, target, observed, candidates, memory.schedule)
    displaced = {*displaced_pods(job, observed, target.quota), *displaced_by_faults(faults, observed)}
    replicas = give_back(
        plan_replicas(
            observed.pods,
            observed.nodes,
            candidates,
            observed.round,
            target.size,
            avoided,
            outdated,
            displaced,
            evacuation,
            target.pods - target.size,
            job.unit_replicas,
        ),
        schedule,
        observed,
    )
    if replicas.victims:
        candidates = assess_workers(observed, replicas.victims, suspects, evacuation.leaving)
    return WorkerPlan(candidates, suspects, starts, evacuation, schedule, replicas, faults, frozenset(avoided))
