"""The health rule for Argo CD in docs/operate/install.md: its Lua is run."""

from typing import Any

import lupa
import pytest
import yaml

from tests.documentation import blocks
from tests.paths import ROOT

PAGE = ROOT / "docs" / "operate" / "install.md"
KEY = "resource.customizations.health.elasticpytorch.dev_ElasticPyTorchJob"
NOT_SEEN = "the operator has not seen this version of the job yet"


def rule() -> str:
    (text,) = [block.text for block in blocks(PAGE) if KEY in block.text]
    return str(yaml.safe_load(text)["data"][KEY])


def a_job(generation: int | None, **conditions: str) -> dict[str, Any]:
    found = [
        {"type": type_, "status": status, "message": f"{type_} {status}"}
        for type_, status in conditions.items()
    ]
    status = {} if generation is None else {"observedGeneration": generation, "conditions": found}
    return {"metadata": {"generation": 2}, "status": status}


@pytest.mark.parametrize(
    ("job", "health", "message"),
    [
        ({"metadata": {"generation": 1}}, "Progressing", NOT_SEEN),
        (a_job(None), "Progressing", NOT_SEEN),
        (a_job(1, Running="True"), "Progressing", NOT_SEEN),
        (a_job(2), "Progressing", None),
        (a_job(2, Running="False", Failed="False"), "Progressing", "Running False"),
        (a_job(2, Running="Unknown"), "Progressing", "Running Unknown"),
        (a_job(2, Running="True", Degraded="True"), "Healthy", "Running True"),
        (a_job(2, Running="False", Suspended="True"), "Suspended", "Suspended True"),
        (a_job(2, Running="False", Complete="True", Failed="False"), "Healthy", "Complete True"),
        (a_job(2, Running="False", Complete="False", Failed="True"), "Degraded", "Failed True"),
    ],
)
def test_health_of_a_job(job: dict[str, Any], health: str, message: str | None) -> None:
    lua = lupa.LuaRuntime()
    found = lua.execute(f"return function(obj) {rule()} end")(lua.table_from(job, recursive=True))
    assert (found["status"], found["message"]) == (health, message)
