"""Which of two API servers options and kubeconfigs choose, and as whom, as kubectl does."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.cluster import Access, KubernetesCluster
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_operator.tls.rotation import Trust
from elastic_pytorch_operator.tls.secret import load_certificate, renew, server_context

from tests.paths import ROOT

KUBECTL = shutil.which(
    "kubectl", path=f"{ROOT / '.cluster' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
)
JOBS = "/apis/elasticpytorch.dev/v1alpha1/namespaces/team/elasticpytorchjobs"
OPTIONS = {
    "context": "context",
    "cluster": "cluster",
    "user": "user",
    "act_as": "as",
    "act_as_uid": "as-uid",
}


class Asked(BaseHTTPRequestHandler):
    """Answers with a list of one object, which says who was asked, and as whom."""

    def do_GET(self) -> None:
        asked: dict[str, Any] = {
            "port": self.server.server_address[1],
            "path": self.path.partition("?")[0],
        }
        asked["headers"] = sorted(
            [name.lower(), value.encode("latin-1").decode()]
            for name, value in self.headers.items()
            if name.lower().startswith(("authorization", "impersonate-"))
        )
        body = json.dumps({"items": [asked]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two servers, and kubeconfigs that name both."""
    folder = tmp_path_factory.mktemp("kubeconfigs")
    trust, tls = renew(Trust(), ["localhost"], time.time()), server_context()
    load_certificate(trust.shown, tls)
    (folder / "ca.crt").write_text(trust.bundle)
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Asked) for _ in range(2)]
    clusters = []
    users = [{"name": name, "user": {"token": f"of-{name}"}} for name in ("ann", "bob")]
    carl: dict[str, Any] = {"token": "of-root", "as": "carl"}
    extra = {"as-user-extra": {"Of/Team": ["1", "2"], "50%": ["3"]}}
    groups: dict[str, Any] = {"as-groups": ["admins", "devs"]}
    users += [
        {"name": "root", "user": carl},
        {"name": "all", "user": carl | groups | extra | {"as-uid": "0"}},
        {"name": "groups", "user": {"token": "of-groups"} | groups},
    ]
    for name, server in zip("ab", servers, strict=True):
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        there = {
            "server": f"https://localhost:{server.server_port}",
            "certificate-authority": "ca.crt",
        }
        clusters.append({"name": name, "cluster": there})
    contexts = [
        {"name": f"{user}-on-{cluster}", "context": {"cluster": cluster, "user": user}}
        for user in ("ann", "bob", "root", "all", "groups")
        for cluster in ("a", "b")
    ]
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "users": users,
        "contexts": contexts,
    }
    (folder / "config").write_text(yaml.safe_dump(whole | {"current-context": "ann-on-a"}))
    (folder / "no-current").write_text(yaml.safe_dump(whole))
    yield folder
    for server in servers:
        server.shutdown()
        server.server_close()


def by_kubectl(access: Access) -> Any:
    assert KUBECTL is not None
    options = [
        f"--{option}={value}"
        for field, option in OPTIONS.items()
        if (value := getattr(access, field))
    ]
    options += [f"--as-group={group}" for group in access.act_as_groups]
    command = [KUBECTL, f"--kubeconfig={access.kubeconfig}", *options, "get", "--raw", JOBS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return "refused" if done.returncode else json.loads(done.stdout)["items"]


def by_client(access: Access) -> Any:
    try:
        return KubernetesCluster.connect(access).list_jobs("team")
    except EpjError:
        return "refused"


@pytest.mark.process
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl: make install gets one")
@pytest.mark.parametrize(
    "access",
    [
        Access(),
        Access(context="bob-on-b"),
        Access(context="nobody"),
        Access(cluster="b"),
        Access(cluster="c"),
        Access(user="bob"),
        Access(user="nobody"),
        Access(user="bob", cluster="b"),
        Access(context="bob-on-b", cluster="a"),
        Access(context="bob-on-b", user="ann"),
        Access(context="nobody", cluster="a"),
        Access(context="root-on-b"),
        Access(act_as="dora"),
        Access(act_as="system:serviceaccount:team:default", cluster="b"),
        Access(context="root-on-a", act_as="dora"),
        Access(act_as="dora", act_as_groups=("a", "équipe"), act_as_uid="7"),
        Access(act_as_groups=("a",)),
        Access(act_as_uid="7"),
        Access(context="root-on-a", act_as_groups=("a",)),
        Access(context="all-on-a"),
        Access(context="all-on-a", act_as="dora"),
        Access(context="all-on-a", act_as_groups=("a",), act_as_uid="7"),
        Access(context="groups-on-a"),
        Access(context="groups-on-a", act_as="dora"),
        Access("no-current", cluster="b", user="bob"),
        Access("no-current", context="ann-on-b"),
    ],
    ids=str,
)
def test_the_server_that_is_asked_and_as_whom(access: Access, folder: Path) -> None:
    access = replace(access, kubeconfig=str(folder / (access.kubeconfig or "config")))
    assert by_client(access) == by_kubectl(access)
