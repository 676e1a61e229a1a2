"""`make images REGISTRY=…`, with a stand-in for Docker and buildah that notes how it was called."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.process

NOTES = 'echo "${0##*/} $*" >> "$NOTES"\n'
VERSION = (ROOT / "VERSION").read_text().strip()
FILES = {
    "operator": "Dockerfile",
    "agent": "worker_image/agent.Dockerfile",
    "worker": "worker_image/Dockerfile",
}


def publish(
    folder: Path, *arguments: str, docker: bool, **variables: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The end of the program, and the calls of the tools."""
    programs = {"docker": NOTES if docker else "exit 1\n", "buildah": NOTES}
    for name, text in programs.items():
        (program := folder / name).write_text(f"#!/bin/sh\n{text}")
        program.chmod(0o755)
    (notes := folder / "notes").touch()
    environment = (
        os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "NOTES": str(notes)} | variables
    )
    command = [str(ROOT / "hack" / "images" / "publish.sh"), *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done, [call for call in notes.read_text().splitlines() if call != "docker info"]


@pytest.mark.parametrize("docker", [True, False])
def test_the_tool_that_is_there_builds_and_pushes_each_image(docker: bool, tmp_path: Path) -> None:
    done, calls = publish(
        tmp_path, "--platform", "linux/arm64", docker=docker, REGISTRY="a.example/ml", PUSH="1"
    )
    tool = "docker" if docker else "buildah"
    assert done.returncode == 0, done.stderr
    assert calls == [
        call
        for name, file in FILES.items()
        for image in [f"a.example/ml/elastic-pytorch-{name}:{VERSION}"]
        for call in [
            f"{tool} build --file {file} --build-arg VERSION={VERSION} --tag {image} --platform "
            "linux/arm64 .",
            f"{tool} push {image}",
        ]
    ]


def test_nothing_is_pushed_unasked_and_a_wrong_registry_is_refused(tmp_path: Path) -> None:
    done, calls = publish(tmp_path, docker=True, REGISTRY="a.example", TAG="7")
    assert (
        done.returncode == 0
        and len(calls) == 3
        and all(" --tag a.example/" in call and ":7 " in call for call in calls)
    )
    done, _ = publish(tmp_path, docker=True, REGISTRY="https://a.example/")
    assert done.returncode == 1 and "without https://" in done.stderr
