import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint, endpoint_slice
from elastic_pytorch_operator.tls.secret import SECRET_NAME

from tests.chart.chart_rendering import (
    CHART,
    container_of,
    helm,
    needs_helm,
    only,
    pod_of,
    render,
    template,
)
from tests.paths import ROOT

CRD_FILE = ROOT / "crds" / "elasticpytorchjobs.yaml"
CRD_FILES = sorted((ROOT / "crds").glob("*.yaml"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("file", CRD_FILES, ids=lambda file: file.stem)
def test_crd_of_the_chart_is_a_copy_of_the_one_source(file: Path) -> None:
    assert (CHART / "files" / file.name).read_text() == file.read_text(), "make docs"


def test_artifact_hub_is_told_of_the_resource_by_a_valid_example() -> None:
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    crd = yaml.safe_load(CRD_FILE.read_text())
    told = {
        each["name"]: each["kind"] for each in yaml.safe_load(annotations["artifacthub.io/crds"])
    }
    version = crd["spec"]["versions"][0]
    definitions = [yaml.safe_load(file.read_text()) for file in CRD_FILES]
    assert told == {each["metadata"]["name"]: each["spec"]["names"]["kind"] for each in definitions}
    (example,) = yaml.safe_load(annotations["artifacthub.io/crdsExamples"])
    jsonschema.validate(example, version["schema"]["openAPIV3Schema"])
    assert example["apiVersion"] == f"{crd['spec']['group']}/{version['name']}"
    kinds = {change["kind"] for change in yaml.safe_load(annotations["artifacthub.io/changes"])}
    assert kinds <= {"added", "changed", "removed", "fixed", "security"}


def test_values_satisfy_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


@needs_helm
def test_chart_lints() -> None:
    result = helm("lint", "--strict", str(CHART))
    assert result.returncode == 0 and "Fail" not in result.stdout + result.stderr, (
        result.stdout + result.stderr
    )


@needs_helm
def test_default_values_render_these_objects() -> None:
    assert sorted((o["kind"], o["metadata"]["name"]) for o in render()) == [
        ("ClusterRole", "elastic-pytorch-operator"),
        ("ClusterRole", "elastic-pytorch-operator-edit"),
        ("ClusterRole", "elastic-pytorch-operator-metrics-reader"),
        ("ClusterRole", "elastic-pytorch-operator-view"),
        ("ClusterRoleBinding", "elastic-pytorch-operator"),
        ("ClusterRoleBinding", "elastic-pytorch-operator-token-keys"),
        ("CustomResourceDefinition", "clusterelasticpytorchjobtemplates.elasticpytorch.dev"),
        ("CustomResourceDefinition", "elasticpytorchjobs.elasticpytorch.dev"),
        ("Deployment", "elastic-pytorch-operator"),
        ("EndpointSlice", "elastic-pytorch-operator-ipv4"),
        ("EndpointSlice", "elastic-pytorch-operator-ipv6"),
        ("Lease", "elastic-pytorch-operator"),
        ("Pod", "elastic-pytorch-operator-test"),
        ("PodDisruptionBudget", "elastic-pytorch-operator"),
        ("Role", "elastic-pytorch-operator-leader"),
        ("RoleBinding", "elastic-pytorch-operator-leader"),
        ("Secret", "elastic-pytorch-operator-tls"),
        ("Service", "elastic-pytorch-operator"),
        ("ServiceAccount", "elastic-pytorch-operator"),
    ]


@needs_helm
def test_too_old_a_cluster_is_refused() -> None:
    result = template(kubernetes="1.29.14")
    assert result.returncode != 0
    assert "chart requires kubeVersion: >=1.30.0-0" in result.stderr


@needs_helm
@pytest.mark.parametrize("file", CRD_FILES, ids=lambda file: file.stem)
def test_rendered_crd_says_what_the_source_says(file: Path) -> None:
    rendered = only(render(), "CustomResourceDefinition", f"{file.stem}.elasticpytorch.dev")
    assert rendered["spec"] == yaml.safe_load(file.read_text())["spec"]
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@needs_helm
def test_crd_goes_with_the_release_if_it_is_not_to_be_kept() -> None:
    rendered = only(
        render("crds.keep=false"),
        "CustomResourceDefinition",
        "elasticpytorchjobs.elasticpytorch.dev",
    )
    assert "annotations" not in rendered["metadata"]


@needs_helm
def test_crd_can_be_left_out() -> None:
    assert "CustomResourceDefinition" not in {o["kind"] for o in render("crds.enabled=false")}


@needs_helm
def test_pod_satisfies_the_restricted_pod_security_standard() -> None:
    objects = render()
    pod, container = pod_of(objects)["spec"], container_of(objects)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    (volume,) = pod["volumes"]
    assert volume == {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, (
        "no disk has the serving key"
    )
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert pod["enableServiceLinks"] is False


@needs_helm
def test_no_user_is_named_so_that_openshift_can_assign_one() -> None:
    rendered = template('watchNamespaces=["a"]', "networkPolicy.enabled=true").stdout
    pods = [
        text for text in rendered.split("\n---\n") if "\nkind: CustomResourceDefinition" not in text
    ]
    fields = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups")
    for field in (*fields, "hostPath", "hostNetwork"):
        assert not [text for text in pods if field in text], field


@needs_helm
def test_replicas_stand_on_different_nodes_and_one_at_a_time_may_be_drained() -> None:
    objects = render("replicaCount=3")
    labels = pod_of(objects)["metadata"]["labels"]
    assert only(objects, "Deployment")["spec"]["replicas"] == 3
    (spread,) = pod_of(objects)["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    assert spread["matchLabelKeys"] == ["pod-template-hash"], (
        "the last pod of a rollout does not join the first"
    )
    budget = only(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()


@needs_helm
def test_single_replica_has_no_budget_that_would_hold_up_a_drain() -> None:
    assert not [o for o in render("replicaCount=1") if o["kind"] == "PodDisruptionBudget"]


@needs_helm
def test_agents_are_given_the_address_of_the_service() -> None:
    objects = render()
    service, container = only(objects, "Service"), container_of(objects)
    (port,) = service["spec"]["ports"]
    url = f"https://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{port['port']}"
    assert container["args"] == [
        "run",
        f"--url={url}",
        "--port=8443",
        "--metrics-port=8444",
        "--lease-duration=4",
        "--renew-deadline=3",
        "--retry-period=1",
        "--max-writes=50",
        "--log-level=INFO",
        "--log-format=json",
    ]
    assert url == "https://elastic-pytorch-operator.the-namespace.svc:8443"
    assert {"name": port["targetPort"], "containerPort": 8443} in container["ports"]
    assert "selector" not in service["spec"], "the leader alone says where it leads"


@needs_helm
@pytest.mark.parametrize(("address", "family"), [("10.0.0.1", "IPv4"), ("fd00::1", "IPv6")])
def test_leader_finds_the_slice_that_it_fills_empty_and_of_its_family(
    address: str, family: str
) -> None:
    wanted = endpoint_slice("the-namespace", Endpoint("pod", "uid", address, 8443))
    objects = render()
    found = only(objects, "EndpointSlice", wanted["metadata"]["name"])
    assert found["apiVersion"] == wanted["apiVersion"]
    assert found["addressType"] == wanted["addressType"] == family
    assert wanted["metadata"]["labels"].items() <= found["metadata"]["labels"].items()
    assert (
        wanted["metadata"]["labels"]["kubernetes.io/service-name"]
        == only(objects, "Service")["metadata"]["name"]
    )
    assert [port["name"] for port in wanted["ports"]] == [
        port["name"] for port in only(objects, "Service")["spec"]["ports"]
    ]


@needs_helm
def test_upgrade_leaves_alone_what_the_operator_has_written_into_its_own_objects() -> None:
    objects = render()
    # Helm's three-way merge changes only fields that a version of the chart renders: even an empty
    # list would be one.
    for kind, name, filled in (
        ("Lease", "elastic-pytorch-operator", {"spec"}),
        ("Secret", SECRET_NAME, {"data", "stringData"}),
        ("EndpointSlice", "elastic-pytorch-operator-ipv4", {"endpoints", "ports"}),
        ("EndpointSlice", "elastic-pytorch-operator-ipv6", {"endpoints", "ports"}),
    ):
        assert not filled & set(only(objects, kind, name)), kind
    assert only(objects, "Secret", SECRET_NAME)["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }


@needs_helm
def test_operator_is_told_where_its_pod_is() -> None:
    fields = {
        e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"]
        for e in container_of(render())["env"]
        if "valueFrom" in e
    }
    assert fields == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "POD_IP": "status.podIP",
        "NODE_NAME": "spec.nodeName",
    }


@needs_helm
def test_probes_ask_a_port_that_no_agent_needs() -> None:
    for settings, port in (((), "probes"), (("metrics.secure=false",), "metrics")):
        container = container_of(render(*settings))
        assert {"name": port, "containerPort": 8781} in container["ports"]
        for probe, path in (
            ("startupProbe", "/healthz"),
            ("livenessProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
        ):
            assert container[probe]["httpGet"] == {"path": path, "port": port}


@needs_helm
def test_further_objects_may_contain_templates() -> None:
    config = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ .Release.Name }}-more"}}'
    assert only(render(f"extraObjects=[{config}]"), "ConfigMap", "release-more")


@needs_helm
def test_dead_node_is_left_in_seconds() -> None:
    tolerations = {
        t["key"]: t["tolerationSeconds"] for t in pod_of(render())["spec"]["tolerations"]
    }
    assert tolerations == {"node.kubernetes.io/unreachable": 10, "node.kubernetes.io/not-ready": 10}


@needs_helm
def test_common_labels_are_on_every_object_and_do_not_change_the_charts_own() -> None:
    everything = (
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        'watchNamespaces=["a"]',
    )
    objects = render('commonLabels={"team":"ml","app.kubernetes.io/name":"mine"}', *everything)
    for found in [*objects, pod_of(objects)]:
        assert found["metadata"]["labels"]["team"] == "ml", found["metadata"]
        assert found["metadata"]["labels"]["app.kubernetes.io/name"].startswith(
            "elastic-pytorch-operator"
        )
    assert "team" not in only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
