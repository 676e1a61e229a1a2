"""`spec.preflight` and `spec.prepare`."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.preflight import PreflightPolicy

from tests.operator.builders import a_job, a_worker_pod


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


VARIABLE = "ELASTIC_PYTORCH_PREPARE_SECONDS"


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, 0), ({}, 1800), ({"timeoutSeconds": 1}, 1), ({"timeoutSeconds": 86400}, 86400)]
)
def test_time_for_the_set_up_is_told_to_agents(given: Any, seconds: int) -> None:
    job = a_job(prepare=given)
    assert job.prepare_seconds == seconds
    [container] = a_worker_pod(job)["spec"]["containers"]
    told = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert told.get(VARIABLE) == (str(seconds) if seconds else None)


@pytest.mark.parametrize(
    ("spec", "waits"),
    [({}, False), ({"prepare": {}}, False), ({"preflight": {}}, False), ({"prepare": {}, "preflight": {}}, True)],
)
def test_agents_wait_for_a_check_before_a_set_up(spec: dict[str, Any], waits: bool) -> None:
    [container] = a_worker_pod(a_job(**spec))["spec"]["containers"]
    assert ("ELASTIC_PYTORCH_CHECK_FIRST" in {variable["name"] for variable in container["env"]}) == waits


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"prepare": True}, "spec.prepare: must be an object, such as {timeoutSeconds: 1800}"),
        ({"prepare": {"timeoutSeconds": 0}}, "spec.prepare.timeoutSeconds: must be greater than or equal to 1, not 0"),
        ({"prepare": {"timeoutSeconds": 86401}}, "spec.prepare.timeoutSeconds: must be less than or equal to 86400, not 86401"),
        (
            {"prepare": {}, "rendezvous": {"backend": "c10d"}},
            "spec.rendezvous.backend: must be operator if prepare is set: stock torchrun does not offer it",
        ),
    ],
)
def test_what_is_refused_of_the_set_up(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        a_job(**spec)
    assert str(refusal.value) == problem
