"""Which cluster is meant: kubeconfigs merged and a context chosen, as kubectl does."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.cluster import Access
from elastic_pytorch_client.cluster.kubeconfig import Chosen, read_kubeconfig
from elastic_pytorch_client.errors import Unreachable

from tests.paths import ROOT

KUBECTL = shutil.which(
    "kubectl", path=f"{ROOT / '.cluster' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
)
FILES_OF_FIELDS = ("certificate-authority", "client-certificate", "client-key")


def config(server: str, user: dict[str, Any], *contexts: str, current: str = "") -> dict[str, Any]:
    """A whole file; a context is written as `name=cluster/user`."""
    parts = [context.replace("=", "/").split("/") for context in contexts]
    return {
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority": "ca.crt"}}
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": n, "context": {"cluster": c, "user": u, "namespace": f"of-{n}"}}
            for n, c, u in parts
        ],
        "current-context": current,
    }


A = config(
    "https://a",
    {"client-certificate": "sub/cert", "client-key": "./key"},
    "c=c/u",
    "gone=no/u",
    "nobody=c/no",
)
B = config("https://b", {"token": "of-b"}, "c=c/u", "d=d/v", current="d")
B["clusters"].append(
    {
        "name": "d",
        "cluster": {"server": "https://d", "insecure-skip-tls-verify": True, "proxy-url": ""},
    }
)
B["users"].append({"name": "v", "user": {"username": "me", "password": "p", "tokenFile": ""}})
WITHOUT_SERVER: dict[str, Any] = {"clusters": [{"name": "c", "cluster": {}}]}
TWICE = {"users": [{"name": "u", "user": {"token": "1"}}, {"name": "u", "user": {"token": "2"}}]}
FILES: dict[str, Any] = {
    "x/a": A,
    "y/b": B,
    "x/other-user": {
        "users": [{"name": "u", "user": {"token": "of-other"}}],
        "current-context": "c",
    },
    "x/no-server": WITHOUT_SERVER,
    "x/twice": TWICE,
    "x/no-kind": {"kind": "Other"},
    "x/a-list": [],
    "x/entries-are-no-list": {"clusters": {}},
    "home/.kube/config": {**A, "current-context": "c"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files, and a certificate of its own content beside each."""
    for name, content in FILES.items():
        place = tmp_path / name
        (place.parent / "sub").mkdir(parents=True, exist_ok=True)
        place.write_text(yaml.safe_dump(content))
        for file in ("ca.crt", "key", "sub/cert"):
            (place.parent / file).write_text(f"{file} of {place.parent.name}")
    (tmp_path / "x/empty").write_text("")
    (tmp_path / "x/remark").write_text("# nothing\n")
    (tmp_path / "x/broken").write_text("clusters: [")
    return tmp_path


def flat(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with the contents of its files, as `kubectl config view --flatten` has them."""
    found = {name: value for name, value in entry.items() if name not in FILES_OF_FIELDS}
    for name in FILES_OF_FIELDS:
        if path := entry.get(name):
            found[f"{name}-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    return found


def by_kubectl(folder: Path, variable: str, access: Access) -> dict[str, Any] | str:
    """The configuration that kubectl would use; a word if it refuses."""
    assert KUBECTL is not None
    options = ("--merge", "--minify", "--flatten", "--raw", "--output=json")
    command = [KUBECTL, "config", "view", *options]
    command += [f"--context={access.context}"] if access.context else []
    command += [f"--kubeconfig={access.kubeconfig}"] if access.kubeconfig else []
    environment = {"HOME": str(folder / "home"), "KUBECONFIG": variable}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        return "refused"
    found = json.loads(done.stdout)
    return {
        kind: [entry[kind.removesuffix("s")] for entry in found[kind]]
        for kind in ("clusters", "users", "contexts")
    }


def by_client(folder: Path, variable: str, access: Access) -> dict[str, Any] | str:
    try:
        found = read_kubeconfig(access, {"HOME": str(folder / "home"), "KUBECONFIG": variable})
    except Unreachable as error:
        assert "\n" not in str(error)
        return "refused"
    [context] = found.config["contexts"]
    context["context"].setdefault("namespace", found.namespace)
    return {
        kind: [flat(entry[kind.removesuffix("s")]) for entry in found.config[kind]]
        for kind in ("clusters", "users", "contexts")
    }


@pytest.mark.process
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl: make install gets one")
@pytest.mark.parametrize(
    ("variable", "access"),
    [
        ("y/b", Access()),
        ("x/a:y/b", Access()),
        ("y/b:x/a", Access()),
        ("x/a:y/b", Access(context="c")),
        ("y/b:x/a", Access(context="c")),
        (":y/b::x/gone:x/a:", Access(context="c")),
        ("y/b:y/b", Access()),
        ("x/other-user:x/a:y/b", Access()),
        ("x/a:x/other-user", Access()),
        ("x/empty:x/remark:y/b", Access()),
        ("", Access()),
        ("x/a:y/b", Access("home/.kube/config")),
        ("x/a", Access("y/b", "c")),
        ("x/a", Access("home/.kube/gone")),
        ("x/a", Access("x/a:y/b")),
        ("x/a", Access(context="gone")),
        ("x/a", Access(context="unknown")),
        ("x/a", Access()),
        ("x/gone:x/missing", Access()),
        ("x/twice:x/a", Access(context="c")),
        ("x/broken:y/b", Access()),
        ("x/no-kind:y/b", Access()),
        ("x/a-list:y/b", Access()),
        ("x/entries-are-no-list:y/b", Access()),
        ("x:y/b", Access()),
    ],
    ids=str,
)
def test_the_cluster_is_the_one_that_kubectl_takes(
    variable: str, access: Access, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert by_client(folder, variable, access) == by_kubectl(folder, variable, access)


def choice_with(folder: Path, user: dict[str, Any], **options: Any) -> Chosen:
    (folder / "x/user").write_text(yaml.safe_dump(config("https://a", user, "c=c/u", current="c")))
    return read_kubeconfig(Access(str(folder / "x/user"), **options), {})


def user_of(folder: Path, user: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = choice_with(folder, user).config["users"][0]["user"]
    return found


def test_a_file_of_a_token_counts_before_a_token_and_ends_before_its_line_does(
    folder: Path,
) -> None:
    (folder / "x/token").write_text("of-file\n")
    assert user_of(folder, {"token": "old", "tokenFile": "token"})["token"] == "of-file"
    with pytest.raises(Unreachable, match="no-token"):
        user_of(folder, {"tokenFile": "no-token"})


@pytest.mark.parametrize(("command", "expected"), [("./bin/login", "x/bin/login"), ("aws", "")])
def test_a_program_with_a_folder_lies_beside_the_kubeconfig(
    command: str, expected: str, folder: Path
) -> None:
    found = user_of(folder, {"exec": {"apiVersion": "v1", "command": command}})["exec"]["command"]
    assert found == (str(folder / expected) if expected else command)


ROOT_OF_ALL = {
    "as": "root",
    "as-uid": "0",
    "as-groups": ["admins", "devs"],
    "as-user-extra": {"50%": ["3"], "a.b/c": ["1", "2"]},
}
EXTRA = [
    "Impersonate-Extra-50%25: 3",
    "Impersonate-Extra-a.b%2Fc: 1",
    "Impersonate-Extra-a.b%2Fc: 2",
]


@pytest.mark.parametrize(
    ("user", "options", "headers"),
    [
        ({}, {}, []),
        ({"as": "root"}, {}, ["Impersonate-User: root"]),
        (
            ROOT_OF_ALL,
            {},
            [
                "Impersonate-User: root",
                "Impersonate-Uid: 0",
                "Impersonate-Group: admins",
                "Impersonate-Group: devs",
                *EXTRA,
            ],
        ),
        (
            ROOT_OF_ALL,
            {"act_as": "dora", "act_as_uid": "7", "act_as_groups": ("x",)},
            ["Impersonate-User: dora", "Impersonate-Uid: 7", "Impersonate-Group: x", *EXTRA],
        ),
        (
            {"as": "root", "as-groups": ["admins"]},
            {"act_as": "dora"},
            ["Impersonate-User: dora", "Impersonate-Group: admins"],
        ),
        (
            {"as": "root"},
            {"act_as_groups": ("x", "y")},
            ["Impersonate-User: root", "Impersonate-Group: x", "Impersonate-Group: y"],
        ),
    ],
)
def test_headers_of_those_who_act_as_others(
    user: dict[str, Any], options: dict[str, Any], headers: list[str], folder: Path
) -> None:
    found = choice_with(folder, {"token": "t", **user}, **options).impersonation
    assert [": ".join(header) for header in found] == headers


@pytest.mark.parametrize(
    ("user", "options", "words"),
    [
        ({"as-groups": ["admins"]}, {}, "needs a user: add --as"),
        ({"as-uid": "0"}, {}, "needs a user: add --as"),
        ({"as-user-extra": {"a": ["1"]}}, {}, "needs a user: add --as"),
        ({}, {"act_as_groups": ("x",)}, "needs a user: add --as"),
        ({"as": "root", "as-groups": "admins"}, {}, "as-groups is not a list of texts"),
        ({"as": "root", "as-groups": [7]}, {}, "as-groups is not a list of texts"),
        ({"as": "root", "as-user-extra": ["a"]}, {}, "as-user-extra is not a map of lists"),
        ({"as": "root", "as-user-extra": {"a": "1"}}, {}, "a in as-user-extra is not a list"),
    ],
)
def test_those_who_cannot_act_as_others(
    user: dict[str, Any], options: dict[str, Any], words: str, folder: Path
) -> None:
    with pytest.raises(Unreachable, match=words):
        choice_with(folder, {"token": "t", **user}, **options)


def test_a_context_is_one_of_several_if_another_has_another_cluster(folder: Path) -> None:
    both = f"{folder}/x/a:{folder}/y/b"
    assert read_kubeconfig(Access(), {"KUBECONFIG": both}).is_one_of_several
    one = config("https://a", {}, "c=c/u", "d=c/u", current="c")
    (folder / "x/one").write_text(yaml.safe_dump(one))
    assert not read_kubeconfig(Access(str(folder / "x/one")), {}).is_one_of_several


@pytest.mark.parametrize(
    ("file", "access", "words"),
    [
        ("gone", Access(), "no context stands in .*gone"),
        ("x/a", Access(), "choose one by --context; it has c, gone, nobody"),
        ("x/a", Access(context="d"), 'it has no context "d"; it has c, gone, nobody'),
        ("x/a", Access(context="gone"), 'cluster "no" of the context "gone" is missing'),
        ("x/a", Access(context="nobody"), 'user "no" of the context "nobody" is missing'),
        ("x/twice", Access(), 'users has "u" twice'),
        ("x/broken", Access(), "cannot use the kubeconfig .*broken: while parsing"),
    ],
)
def test_what_cannot_be_used_is_said(file: str, access: Access, words: str, folder: Path) -> None:
    with pytest.raises(Unreachable, match=words):
        read_kubeconfig(access, {"KUBECONFIG": str(folder / file)})
