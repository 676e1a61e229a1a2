from typing import Any

import pytest

from tests.operator.builders import a_job, a_worker_pod

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
WORKERS = {"elasticpytorch.dev/job-name": "lm", "elasticpytorch.dev/role": "worker"}
TOGETHER = {
    "labelSelector": {"matchLabels": {**WORKERS, "elasticpytorch.dev/unit": "1"}},
    "topologyKey": "rack",
}
OTHERS = [{"key": "elasticpytorch.dev/unit", "operator": "NotIn", "values": ["1"]}]
APART = {
    "weight": 50,
    "podAffinityTerm": {
        "labelSelector": {"matchLabels": WORKERS, "matchExpressions": OTHERS},
        "topologyKey": "rack",
    },
}


def pod(**fields: Any) -> dict[str, Any]:
    """Worker 3 of a job of units of two."""
    job = a_job(replicas=4, minimum=2, maximum=4, unitReplicas=2, **fields)
    made: dict[str, Any] = a_worker_pod(job, 3)
    return made


def test_pod_names_its_unit_and_tells_its_agent_how_large_units_are() -> None:
    made = pod()
    assert made["metadata"]["labels"]["elasticpytorch.dev/unit"] == "1"
    [container] = made["spec"]["containers"]
    assert {"name": "ELASTIC_PYTORCH_UNIT_REPLICAS", "value": "2"} in container["env"]
    assert "affinity" not in made["spec"]
    alone = a_worker_pod(a_job(), 1)
    assert "elasticpytorch.dev/unit" not in alone["metadata"]["labels"]


@pytest.mark.parametrize(
    ("policy", "affinity"),
    [
        ("DoNotSchedule", {REQUIRED: [TOGETHER]}),
        ("ScheduleAnyway", {PREFERRED: [{"weight": 100, "podAffinityTerm": TOGETHER}]}),
    ],
)
def test_units_are_placed_together_and_apart_from_each_other(
    policy: str, affinity: dict[str, Any]
) -> None:
    made = pod(scheduling={"unitTopology": {"topologyKey": "rack", "whenUnsatisfiable": policy}})
    assert made["spec"]["affinity"] == {
        "podAffinity": affinity,
        "podAntiAffinity": {PREFERRED: [APART]},
    }


def test_affinity_of_the_template_stays() -> None:
    own = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "zone"}
    template = {
        "spec": {
            "containers": [{"name": "pytorch", "image": "torch"}],
            "affinity": {"podAffinity": {REQUIRED: [own]}, "nodeAffinity": {PREFERRED: []}},
        }
    }
    made = pod(scheduling={"unitTopology": {"topologyKey": "rack"}}, template=template)
    assert made["spec"]["affinity"]["podAffinity"] == {REQUIRED: [own, TOGETHER]}
    assert made["spec"]["affinity"]["nodeAffinity"] == {PREFERRED: []}


def test_term_that_matches_no_node_matches_none_of_those_that_are_not_avoided() -> None:
    fast = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    template = {
        "spec": {
            "containers": [{"name": "pytorch", "image": "torch"}],
            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, fast]}}},
        }
    }
    made = a_worker_pod(a_job(template=template), avoid=["node-1"])
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]
    terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{}, {**fast, "matchFields": elsewhere}]
