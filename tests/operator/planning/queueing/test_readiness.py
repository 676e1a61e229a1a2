import pytest
from elastic_pytorch_operator.planning.queueing.readiness import report_readiness

from tests.operator.builders import TIME, a_workload

START, RECOVERY = ("False", "WaitForStart"), ("False", "WaitForRecovery")
STARTED, RECOVERED = ("True", "Started"), ("True", "Recovered")


@pytest.mark.parametrize(
    ("before", "ready", "after"),
    [
        ((None, None), 0, (START, START)),
        ((START, START), 1, (None, None)),
        ((START, START), 2, (STARTED, None)),
        ((START, START), 3, (STARTED, STARTED)),
        ((STARTED, STARTED), 3, (None, None)),
        ((STARTED, STARTED), 2, (None, RECOVERY)),  # the loss falls on the extra
        ((STARTED, RECOVERY), 1, (RECOVERY, None)),
        ((RECOVERY, RECOVERY), 3, (RECOVERED, RECOVERED)),
    ],
)
def test_the_last_extra_is_the_first_that_is_not_ready(
    before: tuple[tuple[str, str] | None, ...], ready: int, after: tuple[tuple[str, str] | None, ...]
) -> None:
    workloads = [
        a_workload(number, conditions={"PodsReady": condition} if condition else {}) for number, condition in enumerate(before)
    ]
    changed = {patch.name: patch.status["conditions"][-1] for patch in report_readiness(workloads, ready, TIME)}
    found = tuple(changed.get(workload.name) for workload in workloads)
    assert tuple((c["status"], c["reason"]) if c else None for c in found) == after
