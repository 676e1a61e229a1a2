"""Two releases in one cluster share no name, and do not serve the same jobs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint, endpoint_slice
from elastic_pytorch_operator.tls.secret import secret_name

from tests.chart.chart_rendering import (
    CHART,
    REGISTRY,
    Object,
    container_of,
    helm,
    needs_helm,
    only,
    render,
)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAME = "team-b-operator"
SECOND = (f'fullnameOverride="{NAME}"', 'watchNamespaces=["team-b"]', "crds.enabled=false")
ALL = (
    "metrics.serviceMonitor.enabled=true",
    "networkPolicy.enabled=true",
    "policies.ttlRequired.enabled=true",
)


def identities(objects: list[Object]) -> set[tuple[str, str, str]]:
    return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in objects}


@needs_helm
def test_no_object_of_two_releases_has_the_same_name_even_in_one_namespace() -> None:
    first, second = render('watchNamespaces=["team-a"]', *ALL), render(*SECOND, *ALL)
    assert not identities(first) & identities(second)
    assert all(name.startswith(NAME) for _, _, name in identities(second))


@needs_helm
def test_operator_with_a_name_of_its_own_finds_the_objects_of_its_release() -> None:
    objects = render(*SECOND, *ALL)
    arguments = container_of(objects, NAME)["args"]
    assert f"--name={NAME}" in arguments
    assert f"--url=https://{NAME}.the-namespace.svc:8443" in arguments
    own = only(objects, "Role", f"{NAME}-leader")["rules"]
    wanted = endpoint_slice("the-namespace", Endpoint("pod", "uid", "10.0.0.1", 8443, service=NAME))
    assert own[0]["resourceNames"] == [only(objects, "Lease", NAME)["metadata"]["name"]]
    assert own[1]["resourceNames"] == [
        only(objects, "Secret", secret_name(NAME))["metadata"]["name"]
    ]
    assert wanted["metadata"]["name"] in own[2]["resourceNames"]
    found = only(objects, "EndpointSlice", wanted["metadata"]["name"])
    assert wanted["metadata"]["labels"].items() <= found["metadata"]["labels"].items()
    assert only(objects, "Service", NAME)
    mounted = only(objects, "Pod", f"{NAME}-test")["spec"]["volumes"][0]["projected"]["sources"][1][
        "secret"
    ]["name"]
    assert mounted == secret_name(NAME)
    assert not [a for a in container_of(render())["args"] if a.startswith("--name=")]


@needs_helm
def test_name_override_is_the_label_and_the_name_unless_there_is_a_full_one() -> None:
    for settings, name in (((), "mine"), (('fullnameOverride="other"',), "other")):
        found = only(render('nameOverride="mine"', *settings), "Deployment", name)
        assert found["metadata"]["labels"]["app.kubernetes.io/name"] == "mine"
        assert found["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == "mine"


def role_of(release: str, watched: str) -> Object:
    """What the first release has left in the cluster."""
    annotations = {
        "meta.helm.sh/release-name": release,
        "meta.helm.sh/release-namespace": "system",
        "elasticpytorch.dev/watch-namespaces": watched,
    }
    return {"metadata": {"name": release, "annotations": annotations}}


@contextmanager
def api_server(roles: list[Object]) -> Iterator[str]:
    """The little of an API server that Helm asks while it renders: versions, and cluster roles.

    Yields its address.
    """
    version = "rbac.authorization.k8s.io/v1"
    kind = {"name": "clusterroles", "kind": "ClusterRole", "namespaced": False, "verbs": ["list"]}
    group = {"groupVersion": version, "version": "v1"}
    found = [{"kind": "ClusterRole", "apiVersion": version, **role} for role in roles]
    answers = {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [{"name": "rbac.authorization.k8s.io", "versions": [group]}],
        },
        RBAC: {"kind": "APIResourceList", "groupVersion": version, "resources": [kind]},
        f"{RBAC}/clusterroles": {"kind": "ClusterRoleList", "metadata": {}, "items": found},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = json.dumps(
                answer or {"kind": "Status", "status": "Failure", "code": 404}
            ).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@needs_helm
@pytest.mark.parametrize(
    ("release", "theirs", "mine", "words"),
    [
        ("first", "a,b", '["c"]', ""),
        ("release", "a", '["a"]', ""),
        ("first", "a,b", '["b","c"]', "the release system/first serves b already"),
        (
            "first",
            "",
            '["c"]',
            "the release system/first serves all namespaces, and this one would serve c",
        ),
        (
            "first",
            "a,b",
            "[]",
            "the release system/first serves a, b, and this one would serve all namespaces",
        ),
    ],
)
def test_second_release_that_would_serve_the_same_jobs_is_refused(
    release: str, theirs: str, mine: str, words: str, tmp_path: Path
) -> None:
    stranger = {"metadata": {"name": "a-role-of-another-chart"}}
    config = tmp_path / "config"
    with api_server([stranger, role_of(release, theirs)]) as address:
        clusters = [{"name": "c", "cluster": {"server": address}}]
        context = {"name": "c", "context": {"cluster": "c", "user": ""}}
        access = {"clusters": clusters, "contexts": [context], "current-context": "c"}
        config.write_text(json.dumps({"kind": "Config", **access}))
        values = (f"--set=global.imageRegistry={REGISTRY}", f"--set-json=watchNamespaces={mine}")
        cluster = ("--dry-run=server", f"--kubeconfig={config}", "--kube-version=1.34.0")
        options = (*cluster, "--namespace=system", *values)
        result = helm("template", "release", str(CHART), *options)
    assert bool(result.returncode) == bool(words), result.stderr
    assert words in result.stderr
