from collections.abc import Sequence
from dataclasses import replace

import pytest
from elastic_pytorch_operator.planning.queueing.steps import extra_counts

from tests.operator.builders import a_queued_job


@pytest.mark.parametrize(
    ("wanted", "allowed", "base", "counts"),
    [
        (2, (), 2, ()),
        (5, (), 2, (1, 1, 1)),
        (5, (), 3, (1, 1)),
        (8, (2, 4, 8), 2, (2, 4)),
        (4, (2, 4, 8), 2, (2,)),
        (8, (2, 4, 8), 4, (4,)),
    ],
)
def test_one_extra_for_each_step_up_to_the_wanted_size(
    wanted: int, allowed: Sequence[int], base: int, counts: Sequence[int]
) -> None:
    job = replace(a_queued_job(2, 8), wanted=wanted, allowed=tuple(allowed))
    assert extra_counts(job, base) == counts
