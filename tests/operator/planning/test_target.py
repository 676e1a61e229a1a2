from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import find_quota
from elastic_pytorch_operator.planning.target import Target

from tests.operator.builders import a_queued_job, a_workload, observed
from tests.situations import situations


@situations("target, size, stopped, held", {"no queue": (Target(3), 3, False, False), "suspended": (Target(0), 0, True, False)})
def test_job_without_a_queue_has_what_it_wants(target: Target, size: int, stopped: bool, held: bool) -> None:
    assert (target.size, target.stopped, target.held) == (size, stopped, held)


@situations(
    "workloads, wanted, size, stopped, held",
    {
        "no quota": ((), 4, 0, True, True),
        "suspended without quota": ((), 0, 0, True, False),
        "suspended with quota": ((a_workload(),), 0, 0, True, False),
        "quota for a part": ((a_workload(),), 4, 2, False, False),
        "quota for all": ((a_workload(), a_workload(1)), 3, 3, False, False),
        "quota for more": ((a_workload(), a_workload(1), a_workload(2)), 3, 3, False, False),
        "no Kueue": (None, 4, 0, True, True),
        "suspended, no Kueue": (None, 0, 0, True, False),
    },
)
def test_job_in_a_queue_has_what_has_quota(
    workloads: tuple[WorkloadView, ...] | None, wanted: int, size: int, stopped: bool, held: bool
) -> None:
    target = Target(wanted, find_quota(a_queued_job(), wanted, observed(workloads=workloads)))
    assert (target.size, target.stopped, target.held) == (size, stopped, held)
