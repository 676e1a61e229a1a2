import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.local_jobs import run_local
from tests.operator.builders import a_manifest

pytestmark = pytest.mark.process

SHOW = (
    'echo "lr $LR seed $SEED hub $HUB"; cat "$0"; cat "$1/of/hub"; '
    'stat -c "mode %a" "$1/of/hub"; echo "at $2"; exit 3'
)
SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"SEED": "7", "lr": "0.1"},
}
TOKEN = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "token"},
    "data": {"hub": base64.b64encode(b"a secret\n").decode()},
}


def job() -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "any",
        "command": ["sh", "-c", SHOW, "/scripts/train.py", "/secrets", "$(LR)"],
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "env": [
            {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "lr"}}},
            {
                "name": "HUB",
                "valueFrom": {"secretKeyRef": {"name": "no", "key": "hub", "optional": True}},
            },
        ],
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/scripts"},
            {"name": "secrets", "mountPath": "/secrets"},
        ],
    }
    volumes = [
        {"name": "scripts", "configMap": {"name": "scripts"}},
        {
            "name": "secrets",
            "secret": {
                "secretName": "token",
                "defaultMode": 0o400,
                "items": [{"key": "hub", "path": "of/hub"}],
            },
        },
    ]
    pod = {"containers": [container], "volumes": volumes}
    return a_manifest(
        replicas=1,
        minimum=None,
        maximum=None,
        failurePolicy={"maxFailures": 0},
        template={"spec": pod},
    )


def local(
    folder: Path, documents: list[dict[str, Any]], *options: str | Path
) -> "subprocess.CompletedProcess[str]":
    (folder / "job.yaml").write_text(yaml.safe_dump_all(documents))
    return run_local(folder, folder / "job.yaml", *options)


def test_pod_finds_what_the_files_hold(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('the script')\n")
    (tmp_path / "token.yaml").write_text(yaml.safe_dump(TOKEN))
    done = local(
        tmp_path,
        [job(), SETTINGS],
        "token.yaml",
        "--configmap",
        "scripts=train.py",
        "--workdir",
        "work",
    )
    lines = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
    for line in ("lr 0.1 seed 7 hub ", "print('the script')", "a secret", "mode 400", "at 0.1"):
        assert line in lines, done.stdout + done.stderr
    assert "not applied on one machine: image\n" in done.stderr


def test_missing_config_map_ends_the_command_with_the_fix(tmp_path: Path) -> None:
    done = local(tmp_path, [job(), SETTINGS, TOKEN])
    assert done.returncode == 2
    assert done.stdout == ""
    said = (
        "spec.template.spec.volumes[0].configMap: there is no ConfigMap scripts: "
        "name its YAML file after the job's"
    )
    assert (
        done.stderr
        == f"{tmp_path / 'job.yaml'}: {said}, or make it of a file with --configmap scripts=PATH\n"
    )


def test_what_one_machine_cannot_do_is_left_out_on_request(tmp_path: Path) -> None:
    manifest = job()
    pod = manifest["spec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "fetch", "image": "any"}]
    pod["containers"][0] |= {
        "command": ["sh", "-c", "ls -d $0 && exit 3", "/scripts"],
        "volumeMounts": pod["containers"][0]["volumeMounts"][:1],
    }
    pod["volumes"] = [{"name": "scripts", "hostPath": {"path": "/scripts"}}]
    refused = local(tmp_path, [manifest, SETTINGS])
    assert refused.returncode == 2
    assert [
        line.partition(".yaml: ")[2].partition(":")[0] for line in refused.stderr.splitlines()
    ] == ["spec.template.spec.initContainers", "spec.template.spec.volumes[0].hostPath"]
    done = local(tmp_path, [manifest, SETTINGS], "--leave-out")
    assert "/volumes/shared/scripts" in done.stdout
    assert (
        "not applied on one machine: spec.template.spec.initContainers, "
        "spec.template.spec.volumes[0].hostPath, image\n" in done.stderr
    )


def test_config_map_needs_a_name(tmp_path: Path) -> None:
    done = local(tmp_path, [job()], "--configmap", "train.py")
    assert "must be NAME=PATH, such as settings=config.yaml, not train.py" in done.stderr
