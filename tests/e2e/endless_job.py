"""A job that trains until it is deleted, with no fields but those that every release has."""

import json
from typing import Any

from measure.kind_cluster import read_example

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, run_kubectl
from tests.paths import ROOT


def start(namespace: str, name: str, **fields: Any) -> JobUnderTest:
    """A job with these fields of a spec and few others, with the installed operator's agent."""
    manifest = read_example(ROOT / "examples" / "all-reduce" / "job.yaml")
    spec = {
        "template": manifest["spec"]["template"],
        "resizePolicy": {"settleSeconds": 30},
        **fields,
    }
    spec["template"]["spec"]["containers"][0]["args"] = ENDLESS
    manifest |= {"metadata": {"name": name}, "spec": spec}
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    return JobUnderTest(name, namespace)


def pods_of(job: JobUnderTest) -> set[str]:
    """The UIDs of its pods."""
    return {pod["metadata"]["uid"] for pod in job.pods()}


def steps_with(told: list[str], world: int) -> list[int]:
    """The steps that a log reports of a world size."""
    return [
        int(line.split()[1])
        for line in told
        if line.startswith("STEP") and f"world={world} " in line
    ]
