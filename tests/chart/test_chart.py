"""The Helm chart, linted and rendered by the real helm."""

import functools
import json
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "elastic-pytorch-operator"
CRD_FILE = ROOT / "crds" / "elasticpytorchjobs.yaml"
CRD_COPY = CHART / "files" / CRD_FILE.name
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())

HELM = shutil.which("helm", path=f"{ROOT / '.cluster' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm, on the PATH or in .cluster/bin")

Object = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False, timeout=60)


@functools.cache
def template(*settings: str, kubernetes: str = "1.34.0") -> subprocess.CompletedProcess[str]:
    options = [option for setting in settings for option in ("--set-json", setting)]
    return helm("template", "release", str(CHART), "--namespace=the-namespace", f"--kube-version={kubernetes}", *options)


def render(*settings: str) -> list[Object]:
    result = template(*settings)
    assert result.returncode == 0, result.stderr
    return [found for found in yaml.safe_load_all(result.stdout) if found]


def only(objects: list[Object], kind: str, name: str = "elastic-pytorch-operator") -> Object:
    (found,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(objects: list[Object]) -> Object:
    pod: Object = only(objects, "Deployment")["spec"]["template"]
    return pod


def container_of(objects: list[Object]) -> Object:
    container: Object
    (container,) = pod_of(objects)["spec"]["containers"]
    return container


def test_crd_of_the_chart_is_a_copy_of_the_one_source() -> None:
    remedy = f"cp {CRD_FILE.relative_to(ROOT)} {CRD_COPY.relative_to(ROOT)}"
    assert CRD_COPY.read_text() == CRD_FILE.read_text(), remedy


def test_versions_are_those_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert chart["version"] == chart["appVersion"] == version


def test_values_satisfy_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


def test_schema_and_values_know_the_same_names() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for name in ("image", "serviceAccount", "crds"):
        assert set(SCHEMA["properties"][name]["properties"]) == set(VALUES[name])


def test_every_value_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    documented = {*VALUES, *(key for name in ("image", "serviceAccount", "crds") for key in VALUES[name])}
    bare = []
    for before, line in zip(["", *lines], lines, strict=False):
        key = line.strip().partition(":")[0]
        is_value = key in documented and len(line) - len(line.lstrip()) <= 2
        if is_value and not before.lstrip().startswith("#") and key not in ("image", "serviceAccount", "crds"):
            bare.append(key)
    assert not bare


@needs_helm
def test_chart_lints() -> None:
    result = helm("lint", "--strict", str(CHART))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_helm
def test_default_values_render_these_objects() -> None:
    assert sorted((o["kind"], o["metadata"]["name"]) for o in render()) == [
        ("ClusterRole", "elastic-pytorch-operator"),
        ("ClusterRole", "elastic-pytorch-operator-edit"),
        ("ClusterRole", "elastic-pytorch-operator-view"),
        ("ClusterRoleBinding", "elastic-pytorch-operator"),
        ("CustomResourceDefinition", "elasticpytorchjobs.elasticpytorch.dev"),
        ("Deployment", "elastic-pytorch-operator"),
        ("Service", "elastic-pytorch-operator"),
        ("ServiceAccount", "elastic-pytorch-operator"),
    ]


@needs_helm
def test_too_old_a_cluster_is_refused() -> None:
    result = template(kubernetes="1.29.14")
    assert result.returncode != 0
    assert "chart requires kubeVersion: >=1.30.0-0" in result.stderr


@needs_helm
def test_rendered_crd_says_what_the_source_says() -> None:
    rendered = only(render(), "CustomResourceDefinition", "elasticpytorchjobs.elasticpytorch.dev")
    assert rendered["spec"] == yaml.safe_load(CRD_FILE.read_text())["spec"]
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@needs_helm
def test_crd_goes_with_the_release_if_it_is_not_to_be_kept() -> None:
    rendered = only(render("crds.keep=false"), "CustomResourceDefinition", "elasticpytorchjobs.elasticpytorch.dev")
    assert "annotations" not in rendered["metadata"]


@needs_helm
def test_crd_can_be_left_out() -> None:
    assert "CustomResourceDefinition" not in {o["kind"] for o in render("crds.enabled=false")}


@needs_helm
def test_operator_may_do_exactly_what_it_does() -> None:
    granted = {
        (group, resource): sorted(rule["verbs"])
        for rule in only(render(), "ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {
        ("elasticpytorch.dev", "elasticpytorchjobs"): ["delete", "get", "list", "watch"],
        ("elasticpytorch.dev", "elasticpytorchjobs/status"): ["patch"],
        ("elasticpytorch.dev", "elasticpytorchjobs/finalizers"): ["update"],
        ("", "pods"): ["create", "delete", "get", "list", "watch"],
        ("", "services"): ["create", "get"],
        ("", "nodes"): ["get", "list", "watch"],
        ("events.k8s.io", "events"): ["create", "patch"],
        ("authentication.k8s.io", "tokenreviews"): ["create"],
    }


@needs_helm
def test_no_role_has_a_wildcard_or_reads_secrets() -> None:
    for role in (o for o in render() if o["kind"].endswith("Role")):
        for rule in role["rules"]:
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not words & {"*", "secrets"}


@needs_helm
def test_role_is_bound_to_the_account_that_the_operator_runs_as() -> None:
    for settings, account in (
        ((), "elastic-pytorch-operator"),
        (('serviceAccount.name="other"',), "other"),
        (('serviceAccount={"create":false,"name":"mine"}',), "mine"),
    ):
        objects = render(*settings)
        (subject,) = only(objects, "ClusterRoleBinding")["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": account, "namespace": "the-namespace"}
        assert pod_of(objects)["spec"]["serviceAccountName"] == account


@needs_helm
def test_account_that_is_not_made_must_be_named() -> None:
    result = template("serviceAccount.create=false")
    assert result.returncode != 0
    assert "say in serviceAccount.name which ServiceAccount to use" in result.stderr


@needs_helm
@pytest.mark.parametrize(
    ("role", "aggregated", "verbs"),
    [
        ("view", {"view", "edit", "admin"}, {"get", "list", "watch"}),
        ("edit", {"edit", "admin"}, {"create", "update", "patch", "delete", "deletecollection"}),
    ],
)
def test_users_of_a_namespace_may_use_jobs(role: str, aggregated: set[str], verbs: set[str]) -> None:
    found = only(render(), "ClusterRole", f"elastic-pytorch-operator-{role}")
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    labels = found["metadata"]["labels"]
    assert {label.removeprefix(prefix) for label in labels if label.startswith(prefix)} == aggregated
    assert set(found["rules"][0]["verbs"]) == verbs
    assert not [r for rule in found["rules"] for r in rule["resources"] if "status" in r and "patch" in rule["verbs"]]


@needs_helm
def test_pod_satisfies_the_restricted_pod_security_standard() -> None:
    objects = render()
    pod, container = pod_of(objects)["spec"], container_of(objects)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert [set(volume) - {"name"} for volume in pod["volumes"]] == [{"emptyDir"}]
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert pod["enableServiceLinks"] is False


@needs_helm
def test_there_is_never_more_than_one_operator() -> None:
    spec = only(render(), "Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


@needs_helm
def test_agents_are_given_the_address_of_the_service() -> None:
    objects = render()
    service, container = only(objects, "Service"), container_of(objects)
    (port,) = service["spec"]["ports"]
    url = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{port['port']}"
    assert container["args"] == ["run", f"--url={url}", "--log-level=INFO", "--log-format=json"]
    assert url == "http://elastic-pytorch-operator.the-namespace.svc:8780"
    (container_port,) = container["ports"]
    assert container_port == {"name": port["targetPort"], "containerPort": 8780}
    assert service["spec"]["selector"].items() <= pod_of(objects)["metadata"]["labels"].items()


@needs_helm
def test_operator_knows_its_own_image_for_it_brings_the_agent_into_worker_pods() -> None:
    container = container_of(render('image.repository="example.com/operator"', 'image.pullPolicy="Always"'))
    assert container["env"] == [
        {"name": "AGENT_IMAGE", "value": container["image"]},
        {"name": "AGENT_IMAGE_PULL_POLICY", "value": "Always"},
    ]


@needs_helm
def test_probes_ask_the_port_that_agents_use() -> None:
    container = container_of(render())
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "agents"}


@needs_helm
def test_dead_node_is_left_in_seconds() -> None:
    tolerations = {t["key"]: t["tolerationSeconds"] for t in pod_of(render())["spec"]["tolerations"]}
    assert tolerations == {"node.kubernetes.io/unreachable": 10, "node.kubernetes.io/not-ready": 10}


@needs_helm
@pytest.mark.parametrize(
    ("tag", "image"),
    [
        ("", "example.com/operator:0.1.0"),
        ("dev", "example.com/operator:dev"),
        (f"sha256:{'a' * 64}", f"example.com/operator@sha256:{'a' * 64}"),
    ],
)
def test_image_is_named_by_tag_or_digest(tag: str, image: str) -> None:
    objects = render('image.repository="example.com/operator"', f'image.tag="{tag}"')
    assert container_of(objects)["image"] == image


@needs_helm
def test_values_arrive_in_the_pod() -> None:
    objects = render(
        'image.pullPolicy="Never"',
        'imagePullSecrets=[{"name":"registry"}]',
        'logLevel="DEBUG"',
        'resources={"requests":{"cpu":"2"},"limits":null}',
        'nodeSelector={"pool":"system"}',
        'tolerations=[{"operator":"Exists"}]',
        'affinity={"podAffinity":{"a":"b"}}',
        'podAnnotations={"note":"1"}',
        'podLabels={"team":"ml","app.kubernetes.io/name":"mine"}',
        'priorityClassName="system-cluster-critical"',
        'serviceAccount.annotations={"role":"r"}',
    )
    pod, container = pod_of(objects), container_of(objects)
    assert container["imagePullPolicy"] == "Never"
    assert "--log-level=DEBUG" in container["args"]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "128Mi"}
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["spec"]["nodeSelector"] == {"pool": "system"}
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pod["spec"]["affinity"] == {"podAffinity": {"a": "b"}}
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
    assert pod["metadata"]["annotations"] == {"note": "1"}
    assert only(objects, "ServiceAccount")["metadata"]["annotations"] == {"role": "r"}
    labels = pod["metadata"]["labels"]
    assert labels["team"] == "ml"
    assert labels["app.kubernetes.io/name"] == "elastic-pytorch-operator", "the Service would not find the pod"


@needs_helm
@pytest.mark.parametrize(
    "setting",
    [
        "replicaCount=2",
        'image.tags="dev"',
        'image.tag="a tag"',
        'image.pullPolicy="Sometimes"',
        'logLevel="info"',
        "crds.install=true",
        'crds.keep="yes"',
        'podLabels={"a":1}',
        'nodeSelector=["a"]',
        'imagePullSecrets=["registry"]',
        'resources={"cpu":"1"}',
        "serviceAccount.annotation={}",
    ],
)
def test_value_that_the_chart_does_not_know_is_refused(setting: str) -> None:
    result = template(setting)
    assert result.returncode != 0
    assert "values don't meet the specifications of the schema" in result.stderr


@needs_helm
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("crds.keep=true", "kubectl rollout status deployment/elastic-pytorch-operator --namespace the-namespace"),
        ("crds.enabled=false", "apply crds/elasticpytorchjobs.yaml"),
        ("crds.keep=false", "deletes the resource definition"),
    ],
)
def test_notes_tell_what_to_do_next(setting: str, words: str, tmp_path: Path) -> None:
    # `helm template` leaves the notes out, and `helm install --dry-run` wants a cluster: so they are rendered as an object.
    chart = shutil.copytree(CHART, tmp_path / CHART.name)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text("notes: |\n" + textwrap.indent(notes, "  "))
    result = helm(
        "template",
        "release",
        str(chart),
        "--namespace=the-namespace",
        "--kube-version=1.34.0",
        "--show-only=templates/notes.yaml",
        f"--set-json={setting}",
    )
    assert result.returncode == 0, result.stderr
    assert words in yaml.safe_load(result.stdout)["notes"]
