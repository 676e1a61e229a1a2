"""`spec.prepare`."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob

from tests.operator.builders import a_job, a_worker_pod

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
