from dataclasses import replace

import pytest
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import find_quota
from elastic_pytorch_operator.planning.target import Target

from tests.operator.builders import a_queued_job, a_workload, observed


@pytest.mark.parametrize(
    ("target", "size", "stopped", "held"),
    [
        pytest.param(Target(3), 3, False, False, id="no queue"),
        pytest.param(Target(0), 0, True, False, id="suspended"),
    ],
)
def test_job_without_a_queue_has_what_it_wants(target: Target, size: int, stopped: bool, held: bool) -> None:
    assert (target.size, target.stopped, target.held) == (size, stopped, held)


@pytest.mark.parametrize(
    ("workloads", "wanted", "size", "stopped", "held"),
    [
        pytest.param((), 4, 0, True, True, id="no quota"),
        pytest.param((), 0, 0, True, False, id="suspended without quota"),
        pytest.param((a_workload(),), 0, 0, True, False, id="suspended with quota"),
        pytest.param((a_workload(),), 4, 2, False, False, id="quota for a part"),
        pytest.param((a_workload(), a_workload(1)), 3, 3, False, False, id="quota for all"),
        pytest.param((a_workload(), a_workload(1), a_workload(2)), 3, 3, False, False, id="quota for more"),
        pytest.param(None, 4, 0, True, True, id="no Kueue"),
        pytest.param(None, 0, 0, True, False, id="suspended, no Kueue"),
    ],
)
def test_job_in_a_queue_has_what_has_quota(
    workloads: tuple[WorkloadView, ...] | None, wanted: int, size: int, stopped: bool, held: bool
) -> None:
    target = Target(wanted, find_quota(a_queued_job(), wanted, replace(observed(), workloads=workloads)))
    assert (target.size, target.stopped, target.held) == (size, stopped, held)
