"""The chart with the value sets of its ci folder: each renders to what an API server would take."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from elastic_pytorch_operator.api.names import LABEL_ROLE

from tests.chart.chart_rendering import CHART, Object, helm, needs_helm, only, pod_of, render
from tests.chart.kubernetes_shapes import problems_of
from tests.faults import assert_none, fault_of

SETS = sorted((CHART / "ci").glob("*-values.yaml"))


def values(name: str) -> Path:
    return CHART / "ci" / f"{name}-values.yaml"


def check_set(path: Path) -> None:
    lint = helm("lint", "--strict", str(CHART), f"--values={path}")
    assert lint.returncode == 0, lint.stdout
    objects = render(values=path)
    assert [problem for found in objects for problem in problems_of(found)] == []
    names = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(names) == len(set(names)), "nothing is made twice"


@needs_helm
def test_value_sets_make_objects_that_an_api_server_takes() -> None:
    assert_none(f"{path.name}: {fault}" for path in SETS for fault in fault_of(check_set, path))


def test_there_are_sets_for_all_values() -> None:
    assert len(SETS) >= 10
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    told = {name for path in SETS for name in yaml.safe_load(path.read_text())}
    assert told == set(defaults)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda o: o["spec"].update(replica=2),
            "Deployment.spec.replica: Extra inputs are not permitted",
        ),
        (
            lambda o: o["spec"].update(replicas="2"),
            "Deployment.spec.replicas: Input should be a valid integer",
        ),
        (lambda o: o["spec"].pop("selector"), "Deployment.spec.selector: Field required"),
        (
            lambda o: o["spec"]["template"]["spec"]["containers"][0].pop("name"),
            "containers.0.name: Field required",
        ),
    ],
)
@needs_helm
def test_shapes_tell_wrong_objects(change: Callable[[Object], object], words: str) -> None:
    found = yaml.safe_load(yaml.safe_dump(only(render(), "Deployment")))
    change(found)
    assert any(words in problem for problem in problems_of(found))


@needs_helm
def test_network_policy_lets_in_agents_and_whom_the_values_name() -> None:
    objects = render(values=values("closed-network"))
    policy = only(objects, "NetworkPolicy")["spec"]
    assert (
        policy["podSelector"]["matchLabels"].items()
        <= pod_of(objects)["metadata"]["labels"].items()
    )
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    agents, prometheus = policy["ingress"]
    assert agents["from"][0]["podSelector"] == {
        "matchExpressions": [{"key": LABEL_ROLE, "operator": "Exists"}]
    }
    tester = only(objects, "Pod", "elastic-pytorch-operator-test")
    assert (
        agents["from"][1]["podSelector"]["matchLabels"].items()
        <= tester["metadata"]["labels"].items()
    )
    assert "prometheus" in str(prometheus["from"])


@needs_helm
def test_network_policy_leaves_the_way_out_open_unless_told() -> None:
    policy = only(render("networkPolicy.enabled=true"), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert "egress" not in policy


@needs_helm
def test_pod_of_helm_test_is_not_taken_for_an_operator() -> None:
    objects = render()
    tester = only(objects, "Pod", "elastic-pytorch-operator-test")
    selector = only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= tester["metadata"]["labels"].items()
    assert tester["spec"]["automountServiceAccountToken"] is False
