"""`spec.preflight`."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.preflight import PreflightPolicy

from tests.operator.builders import a_job


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        (None, None),
        ({}, PreflightPolicy(20, 200)),
        ({"seconds": 5}, PreflightPolicy(5, 200)),
        ({"seconds": 600, "maxSlowdownPercent": 300}, PreflightPolicy(600, 300)),
    ],
)
def test_what_is_read(given: Any, policy: PreflightPolicy | None) -> None:
    assert a_job(preflight=given).preflight == policy


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (20, "spec.preflight: must be an object, such as {seconds: 20}"),
        ({"seconds": "20"}, "spec.preflight.seconds: must be a whole number, not '20'"),
        ({"seconds": 4}, "spec.preflight.seconds: must be greater than or equal to 5, not 4"),
        ({"seconds": 601}, "spec.preflight.seconds: must be less than or equal to 600, not 601"),
        ({"maxSlowdownPercent": 100}, "spec.preflight.maxSlowdownPercent: must be greater than or equal to 110, not 100"),
        ({"maxSlowdownPercent": 1.5}, "spec.preflight.maxSlowdownPercent: must be a whole number, not 1.5"),
    ],
)
def test_what_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        a_job(preflight=given)
    assert str(refusal.value) == problem
