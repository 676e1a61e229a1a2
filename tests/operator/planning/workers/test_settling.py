"""For how long those that are ready wait for others."""

import pytest
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.planning.workers.settling import settled_at
from elastic_pytorch_operator.planning.workers.silence import FIRST_REPORT

NOW = 100.0


def ready(index: int, since: float) -> Candidate:
    return Candidate(f"w{index}", index, "", Liveness.READY, ready_since=since)


def starting(*, runs: bool) -> Candidate:
    return Candidate("w9", 9, "", Liveness.STARTING, container_runs=runs)


@pytest.mark.parametrize(
    ("room", "others", "expected"),
    [
        (2, [], NOW),
        (0, [], NOW),
        (3, [], 92.0),
        (3, [starting(runs=False)], 92.0),
        (3, [starting(runs=True)], 80.0 + FIRST_REPORT.at_least_seconds),
    ],
)
def test_when_newcomers_need_not_wait(room: int, others: list[Candidate], expected: float) -> None:
    newcomers = [ready(0, 80.0), ready(1, 90.0)]
    assert settled_at(newcomers, [*newcomers, *others], room, 2.0, NOW) == expected
