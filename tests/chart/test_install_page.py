"""docs/operate/install.md: its manifests and its list of images are those that are needed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from elastic_pytorch_operator.api.names import LABEL_ROLE

from tests.chart.chart_rendering import (
    HELM,
    REGISTRY,
    Object,
    container_of,
    needs_helm,
    pod_of,
    render,
)
from tests.chart.kubernetes_shapes import problems_of
from tests.documentation import blocks
from tests.operator.builders import a_job, a_worker_pod
from tests.paths import ROOT

PAGE = ROOT / "docs" / "operate" / "install.md"


def manifest(kind: str) -> Object:
    found: Object
    (found,) = [
        o
        for o in (yaml.safe_load(b.text) for b in blocks(PAGE) if b.language == "yaml")
        if o["kind"] == kind
    ]
    return found


@needs_helm
@pytest.mark.skipif(shutil.which("grep") is None, reason="needs grep")
def test_list_of_images_is_complete() -> None:
    assert HELM is not None
    (command,) = [
        block.text
        for block in blocks(PAGE)
        if "helm template" in block.text and "grep" in block.text
    ]
    environment = os.environ | {"PATH": f"{Path(HELM).parent}:{os.environ['PATH']}"}
    listed = subprocess.run(
        command.replace("REGISTRY", REGISTRY),
        shell=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    container = container_of(render())
    agent = next(
        variable["value"] for variable in container["env"] if variable["name"] == "AGENT_IMAGE"
    )
    assert listed.stdout.splitlines() == sorted([container["image"], agent])


@needs_helm
def test_policy_of_the_jobs_selects_workers_and_lets_them_reach_each_other_and_the_operator() -> (
    None
):
    policy = manifest("NetworkPolicy")
    assert problems_of(policy) == []
    workers = policy["spec"]["podSelector"]
    assert workers == {"matchExpressions": [{"key": LABEL_ROLE, "operator": "Exists"}]}
    assert LABEL_ROLE in a_worker_pod(a_job(), 0)["metadata"]["labels"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": workers}]}]
    peers, operator, names = policy["spec"]["egress"]
    assert peers == {"to": [{"podSelector": workers}]}
    (target,) = operator["to"]
    assert (
        target["podSelector"]["matchLabels"].items()
        <= pod_of(render())["metadata"]["labels"].items()
    )
    ports = {port["name"]: port["containerPort"] for port in container_of(render())["ports"]}
    assert [port["port"] for port in operator["ports"]] == [ports["agents"]]
    assert {port["port"] for port in names["ports"]} == {53}
