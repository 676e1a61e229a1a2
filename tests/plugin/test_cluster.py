"""The edge: the real client against an HTTP server that answers as an API server does."""

import json
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from elastic_pytorch_client.cluster import Access, KubernetesCluster, training_container
from elastic_pytorch_client.cluster.kubernetes_api import MAX_LINE_BYTES, LineCutter
from elastic_pytorch_client.errors import (
    EpjError,
    NoJobKind,
    NoSuchJob,
    NotAllowed,
    NotFound,
    Refused,
    Unreachable,
    error_of,
)
from kubernetes.client import Configuration

from tests.paths import ROOT
from tests.plugin.api_server import ApiServer, status

JOBS = "/apis/elasticpytorch.dev/v1alpha1/namespaces/team/elasticpytorchjobs"
POD = {"metadata": {"name": "w"}, "spec": {"containers": [{"name": "side"}, {"name": "pytorch"}]}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> str:
    (tmp_path / "config").write_text(yaml.safe_dump(server.kubeconfig))
    return str(tmp_path / "config")


@pytest.fixture
def cluster(kubeconfig: str) -> KubernetesCluster:
    return KubernetesCluster.connect(Access(kubeconfig=kubeconfig))


def test_namespaces_of_contexts(kubeconfig: str) -> None:
    assert KubernetesCluster.connect(Access(kubeconfig)).namespace == "team"
    assert KubernetesCluster.connect(Access(kubeconfig, "two")).namespace == "default"
    assert KubernetesCluster.connect(Access(kubeconfig, "two", "mine")).namespace == "mine"


def test_kubeconfig_that_is_not_there(kubeconfig: str) -> None:
    with pytest.raises(Unreachable, match=f"cannot use the kubeconfig {kubeconfig}.no"):
        KubernetesCluster.connect(Access(f"{kubeconfig}.no"))


def test_each_request_says_as_whom_it_acts(server: ApiServer, kubeconfig: str) -> None:
    server.answers["GET", JOBS] = [(200, b'{"items": []}')]
    server.answers["PATCH", f"{JOBS}/j"] = [(200, b"{}")]
    access = Access(kubeconfig, act_as="dora", act_as_groups=("a", "équipe"), act_as_uid="7")
    cluster = KubernetesCluster.connect(access)
    cluster.list_jobs("team")
    cluster.patch_job("team", "j", {"spec": {"suspend": True}})
    acting = [("Impersonate-User", "dora"), ("Impersonate-Uid", "7")]
    acting += [("Impersonate-Group", "a"), ("Impersonate-Group", "équipe")]
    assert server.acting == [acting, acting]
    KubernetesCluster.connect(Access(kubeconfig)).list_jobs("team")
    assert server.acting[2] == []


def test_options_to_act_as_another_count_in_a_pod_too(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(client_configuration: Configuration) -> None:
        client_configuration.host = f"http://127.0.0.1:{server.server_port}"

    monkeypatch.setattr("kubernetes.config.load_incluster_config", load)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    server.answers["GET", JOBS] = [(200, b'{"items": []}')]
    KubernetesCluster.connect(Access(act_as="dora")).list_jobs("team")
    assert server.acting == [[("Impersonate-User", "dora")]]


def test_no_command_is_run_in_a_pod_as_another_user(server: ApiServer, kubeconfig: str) -> None:
    cluster = KubernetesCluster.connect(Access(kubeconfig, act_as="dora"))
    with pytest.raises(NotAllowed, match="only `kubectl exec`"):
        cluster.run_in_pod("team", "w", "pytorch", ["true"])
    assert server.asked == []


def test_lists_in_pages(server: ApiServer, cluster: KubernetesCluster) -> None:
    pages = [
        {"items": [{"a": 1}], "metadata": {"continue": "x"}},
        {"items": [{"a": 2}], "metadata": {}},
    ]
    server.answers["GET", JOBS] = [(200, json.dumps(page).encode()) for page in pages]
    assert cluster.list_jobs("team") == [{"a": 1}, {"a": 2}]
    assert server.asked[1][2]["continue"] == ["x"]


def test_changes(server: ApiServer, cluster: KubernetesCluster) -> None:
    for method, path in (
        ("PATCH", f"{JOBS}/j"),
        ("PATCH", f"{JOBS}/j/scale"),
        ("DELETE", f"{JOBS}/j"),
        ("POST", JOBS),
    ):
        server.answers[method, path] = [(200, b"{}")]
    cluster.patch_job("team", "j", {"spec": {"suspend": True}})
    cluster.scale_job("team", "j", 4)
    cluster.delete_job("team", "j")
    cluster.create_job("team", {"kind": "ElasticPyTorchJob"})
    assert [(method, body) for method, _, _, body in server.asked] == [
        ("PATCH", {"spec": {"suspend": True}}),
        ("PATCH", {"spec": {"replicas": 4}}),
        ("DELETE", {"propagationPolicy": "Background"}),
        ("POST", {"kind": "ElasticPyTorchJob"}),
    ]
    assert server.content_types[:2] == ["application/merge-patch+json"] * 2


def test_command_in_a_pod_that_may_not_be_run(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    path = "/api/v1/namespaces/team/pods/w/exec"
    server.answers["GET", path] = [(403, b"{}")]
    with pytest.raises(NotAllowed, match="get and create on pods/exec in team"):
        cluster.run_in_pod("team", "w", "pytorch", ["python3", "-c", "print()"])
    assert server.asked[0][2]["command"] == ["python3", "-c", "print()"]
    server.answers["GET", path] = [(500, b"{}")]
    with pytest.raises(Unreachable, match="cannot run a command in pod w"):
        cluster.run_in_pod("team", "w", "pytorch", ["true"])


def test_watches_put_lines_together(server: ApiServer, cluster: KubernetesCluster) -> None:
    lines = b"".join(
        json.dumps({"type": t, "object": {"n": t}}).encode() + b"\n"
        for t in ("ADDED", "MODIFIED", "ERROR", "ADDED")
    )
    server.answers["GET", JOBS] = [(200, [lines[:20], lines[20:25], lines[25:]])]
    assert list(cluster.watch_jobs("team", "j", seconds=7)) == [
        ("ADDED", {"n": "ADDED"}),
        ("MODIFIED", {"n": "MODIFIED"}),
    ]
    query = server.asked[0][2]
    assert (query["fieldSelector"], query["timeoutSeconds"]) == (["metadata.name=j"], ["7"])


def test_logs_of_the_training_container(server: ApiServer, cluster: KubernetesCluster) -> None:
    path = "/api/v1/namespaces/team/pods/w"
    server.answers["GET", path] = [(200, json.dumps(POD).encode())]
    server.answers["GET", f"{path}/log"] = [(200, [b"1Z one\n2Z ", b"two\xff\n3Z three"])]
    found = cluster.pod_log("team", "w", follow=True, tail_lines=3, since="2026-01-01T00:00:00Z")
    assert list(found) == ["1Z one", "2Z two\ufffd", "3Z three"]
    query = {name: value[0] for name, value in server.asked[-1][2].items()}
    assert query == {
        "timestamps": "true",
        "container": "pytorch",
        "follow": "true",
        "tailLines": "3",
        "sinceTime": "2026-01-01T00:00:00Z",
    }


def test_line_of_any_length_is_read_without_its_middle_and_those_behind_it_are_read_too() -> None:
    cutter, rest = LineCutter(), MAX_LINE_BYTES
    found = cutter.take(b"1Z begin ")
    while rest > 0:
        found += cutter.take(b"x" * 65536)
        rest -= 65536
    found += cutter.take(b" end\n2Z two\n3Z thr")
    assert [(line[:10], line[-5:]) for line in found] == [
        ("1Z begin x", "x end"),
        ("2Z two", "Z two"),
    ]
    assert len(found[0]) < MAX_LINE_BYTES
    assert (cutter.take_rest(), cutter.take_rest()) == ("3Z thr", "")


@pytest.mark.parametrize(
    ("annotations", "containers", "expected"),
    [
        (
            {"elasticpytorch.dev/training-container": "trainer"},
            ["istio-proxy", "trainer"],
            "trainer",
        ),
        ({}, ["side", "pytorch"], "pytorch"),
        ({}, ["trainer"], "trainer"),
    ],
)
def test_training_container(
    annotations: dict[str, str], containers: list[str], expected: str
) -> None:
    pod = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": name} for name in containers]},
    }
    assert training_container(pod) == expected


@pytest.mark.parametrize(
    ("code", "body", "kind", "words"),
    [
        (
            404,
            status(404, 'elasticpytorchjobs "j" not found', "j"),
            NoSuchJob,
            'there is no ElasticPyTorchJob "j" in namespace "team"',
        ),
        (404, b"404 page not found\n", NoJobKind, "install the chart elastic-pytorch-operator"),
        (
            403,
            status(403, "elasticpytorchjobs is forbidden:\n User x cannot get"),
            NotAllowed,
            "forbidden: User x cannot get",
        ),
        (401, status(401, "Unauthorized"), NotAllowed, "credentials"),
        (
            422,
            status(422, "spec.replicas: must not be more"),
            Refused,
            "spec.replicas: must not be more",
        ),
        (500, b"\xffoops", Unreachable, "the API server answers 500"),
    ],
)
def test_errors(
    code: int,
    body: bytes,
    kind: type[EpjError],
    words: str,
    server: ApiServer,
    cluster: KubernetesCluster,
) -> None:
    server.answers["GET", f"{JOBS}/j"] = [(code, body)]
    with pytest.raises(kind, match=words) as caught:
        cluster.get_job("team", "j")
    assert "\n" not in str(caught.value)


def test_pods_that_are_not_there() -> None:
    assert isinstance(error_of(404, status(404, 'pods "w" not found', "w")), NotFound)


def test_a_refusal_by_a_rule_is_the_sentence_and_its_field() -> None:
    sentence = "field is immutable while minReplicas is unset: set spec.minReplicas"
    cause = {
        "reason": "FieldValueInvalid",
        "message": f'Invalid value: "integer": {sentence}',
        "field": "spec.replicas",
    }
    answer = {
        "message": "ElasticPyTorchJob.elasticpytorch.dev is invalid: ...",
        "details": {"causes": [cause]},
    }
    assert str(error_of(422, json.dumps(answer).encode())) == f"spec.replicas: {sentence}"
    required = {"message": "Required value: set the number of workers", "field": "spec.replicas"}
    answer = {
        "message": "invalid",
        "details": {"causes": [required, {"message": "plain", "field": "<nil>"}]},
    }
    assert (
        str(error_of(422, json.dumps(answer).encode()))
        == "spec.replicas: Required value: set the number of workers; plain"
    )


def test_an_answer_that_is_no_json(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.answers["GET", f"{JOBS}/j"] = [(200, b"<html>")]
    with pytest.raises(Unreachable, match="broke off"):
        cluster.get_job("team", "j")


def test_no_server_answers(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.server_close()
    server.shutdown()
    with pytest.raises(Unreachable, match="no answer from the API server") as caught:
        cluster.get_job("team", "j")
    assert "\n" not in str(caught.value)
    assert " object at " not in str(caught.value)


def test_the_python_of_the_documentation(
    server: ApiServer,
    kubeconfig: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    chapter = (
        (ROOT / "docs" / "use" / "plugin.md")
        .read_text()
        .partition("## From Python")[2]
        .partition("\n## ")[0]
    )
    code = textwrap.dedent(
        "\n".join(line for line in chapter.splitlines() if line.startswith("    "))
    )
    complete = [{"type": "Complete", "status": "True"}]
    job = {
        "metadata": {"name": "my-job", "uid": "1"},
        "status": {"state": "Complete", "conditions": complete},
    }
    server.answers["POST", JOBS] = [(201, json.dumps(job).encode())]
    server.answers["GET", f"{JOBS}/my-job"] = [(200, json.dumps(job).encode())]
    server.answers["DELETE", f"{JOBS}/my-job"] = [(200, b"{}")]
    exec(compile(code, "docs/use/plugin.md", "exec"), {})
    assert capsys.readouterr().out == "Complete 0 None None\n"
    assert [method for method, *_ in server.asked] == ["POST", "GET", "DELETE"]
    assert server.asked[0][3]["spec"]["failurePolicy"] == {"maxFailures": 1}


class Torn(bytes):
    """A chunk that says it is shorter than it is."""

    def __len__(self) -> int:
        return 4


def test_refusal_that_breaks_off_is_an_error_in_words(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    server.answers["GET", f"{JOBS}/j"] = [(503, Torn(b"oops, and more"))]
    with pytest.raises(Unreachable, match="no answer from the API server"):
        cluster.get_job("team", "j")
