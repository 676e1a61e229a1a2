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
        ({}, PreflightPolicy(20, 2.0)),
        ({"seconds": 5}, PreflightPolicy(5, 2.0)),
        ({"seconds": 600, "maxSlowdown": 3}, PreflightPolicy(600, 3.0)),
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
        ({"maxSlowdown": 1}, "spec.preflight.maxSlowdown: must be a number from 1.1 to 100, not 1"),
        ({"maxSlowdown": True}, "spec.preflight.maxSlowdown: must be a number from 1.1 to 100, not True"),
    ],
)
def test_what_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        a_job(preflight=given)
    assert str(refusal.value) == problem
