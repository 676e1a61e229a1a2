"""The shell commands of the documentation, run as a reader would, in order and beside its files."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from measure.kind_cluster import read_example

from tests.documentation import blocks
from tests.e2e.api_requests import KUBECONFIG
from tests.paths import ROOT

pytestmark = pytest.mark.e2e

# What the test cluster has in the place of what the reader has.
IMAGES = {"pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime": "elastic-pytorch-worker:dev"}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        pytest.param("docs/use/getting-started.md", marks=pytest.mark.long),
        pytest.param("docs/operate/operations.md", marks=pytest.mark.long),
    ],
)
def test_commands_of_a_page_work(page: str, namespace: str, tmp_path: Path) -> None:
    kubeconfig = shutil.copy(KUBECONFIG, tmp_path / "kubeconfig")
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{ROOT / '.cluster' / 'bin'}:{os.environ['PATH']}",
    }

    def run(script: str) -> None:
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{script}{done.stdout}{done.stderr}"
        print(done.stdout)

    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for path in (tmp_path / "examples").rglob("*.yaml"):
        path.write_text(yaml.safe_dump(read_example(path)))
    run(f"kubectl config set-context --current --namespace={namespace}")
    for block in blocks(ROOT / page):
        text = block.text
        for theirs, ours in IMAGES.items():
            text = text.replace(theirs, ours)
        if block.file:
            (tmp_path / block.file).write_text(text)
        elif block.language == "sh" and not block.not_run:
            run(text)
