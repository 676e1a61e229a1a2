"""docs/use/pipelines.md: its Argo Workflow finds the end of a job in the real statuses."""

from typing import Any

import pytest
import yaml
from elastic_pytorch_local.manifests.admission import admit
from elastic_pytorch_operator.api.conditions import Condition, ended, merge_conditions, not_ended

from tests.documentation import blocks
from tests.job_schema import VALIDATOR
from tests.paths import ROOT

WORKFLOW = next(
    yaml.safe_load(block.text)
    for block in blocks(ROOT / "docs" / "use" / "pipelines.md")
    if "kind: Workflow" in block.text
)
RESOURCE = WORKFLOW["spec"]["templates"][0]["resource"]
# In the order in which planning/reporting/status.py puts them before those of an end.
LIVING = [
    Condition(type_, False, "Any", "any")
    for type_ in ("Running", "Resizing", "Degraded", "Suspended")
]


def holds(condition: str, job: Any) -> bool:
    """What Argo finds at a path of keys and indexes, compared as a string."""
    path, _, wanted = condition.partition(" == ")
    for key in path.split("."):
        try:
            job = job[int(key) if isinstance(job, list) else key]
        except LookupError:
            return False
    return job == wanted


@pytest.mark.parametrize(
    ("conditions", "succeeds", "fails"),
    [
        (ended("WorkersSucceeded", "all workers have succeeded", complete=True), True, False),
        (ended("TooManyFailures", "4 failures", complete=False), False, True),
        ([*LIVING, *not_ended()], False, False),
        ([], False, False),
    ],
    ids=["complete", "failed", "not ended", "not seen"],
)
def test_conditions_of_the_workflow(
    conditions: list[Condition], succeeds: bool, fails: bool
) -> None:
    job = {
        "status": {
            "conditions": merge_conditions(
                {}, conditions, generation=1, time="2026-11-28T00:00:00Z"
            )
        }
    }
    assert holds(RESOURCE["successCondition"], job) is succeeds
    assert holds(RESOURCE["failureCondition"], job) is fails


def test_job_of_the_workflow_is_valid() -> None:
    job = yaml.safe_load(RESOURCE["manifest"])
    job["metadata"]["name"] = job["metadata"].pop("generateName") + "x2b4c"
    VALIDATOR.validate(job)
    admit(job)
