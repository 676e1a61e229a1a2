"""What the chart's `jobDefaults` become."""

import json
from typing import Any

import pytest
from elastic_pytorch_operator.spec.platform.job_defaults import parse_tolerations

from tests.chart.chart_rendering import container_of, needs_helm, render, template


def arguments(**defaults: Any) -> list[str]:
    objects = render(*([f"jobDefaults={json.dumps(defaults)}"] if defaults else []))
    return [
        argument
        for argument in container_of(objects)["args"]
        if "default" in argument or "secrets" in argument
    ]


@needs_helm
def test_defaults_of_jobs_arrive_at_the_operator() -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    *plain, tolerations = arguments(
        ttlSecondsAfterFinished=0,
        cleanPodPolicy="All",
        agentImagePullSecrets=[{"name": "one"}, {"name": "two"}],
        tolerations=[toleration],
    )
    assert plain == [
        "--default-ttl=0",
        "--default-clean-pod-policy=All",
        "--agent-image-pull-secrets=one,two",
    ]
    assert parse_tolerations(tolerations.removeprefix("--default-tolerations=")) == (toleration,)
    assert arguments() == []


@needs_helm
@pytest.mark.parametrize(
    "value",
    [
        'jobDefaults.cleanPodPolicy="Never"',
        "jobDefaults.ttlSecondsAfterFinished=-1",
        'jobDefaults.tolerations=[{"key":"a","effekt":"NoSchedule"}]',
    ],
)
def test_values_that_no_job_could_have_are_refused(value: str) -> None:
    assert "values don't meet the specifications of the schema" in template(value).stderr
