from typing import Any

import pytest

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
