"""The version stands in the file VERSION; what repeats it says the same."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.paths import ROOT

VERSION = (ROOT / "VERSION").read_text().strip()


def versions(root: Path) -> dict[str, str]:
    """Each place that repeats the version, and what it says."""
    chart = yaml.safe_load((root / "charts" / "elastic-pytorch-operator" / "Chart.yaml").read_text())
    packages = {
        f"{folder}/pyproject.toml": tomllib.loads((root / folder / "pyproject.toml").read_text())["project"]["version"]
        for folder in ("worker_image", "plugin", "local")
    }
    module = "operator/elastic_pytorch_operator/__init__.py"
    (operator,) = re.findall(r'^__version__ = "(.+)"$', (root / module).read_text(), re.MULTILINE)
    return {
        **packages,
        module: operator,
        "Chart.yaml, version": chart["version"],
        "Chart.yaml, appVersion": chart["appVersion"],
    }


def test_every_place_says_what_the_file_version_says() -> None:
    assert set(versions(ROOT).values()) == {VERSION}, f"run `make version VERSION={VERSION}`"


def test_root_project_reads_the_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"file": "VERSION"}


def test_no_other_file_repeats_it() -> None:
    files = (
        "Dockerfile",
        "worker_image/Dockerfile",
        "worker_image/agent.Dockerfile",
        "docs/operate/install.md",
        "docs/use/getting-started.md",
    )
    assert not [file for file in files if VERSION in (ROOT / file).read_text()]


@pytest.mark.process
@pytest.mark.parametrize(
    ("version", "accepted"), [("9.8.7", True), ("9.8.7-dev", True), ("v9.8.7", False), ("9.8", False), ("", False)]
)
def test_make_version_writes_it_everywhere_or_nowhere(version: str, accepted: bool, tmp_path: Path) -> None:
    for file in (
        "hack/version.sh",
        "hack/settings.sh",
        "hack/step.sh",
        "VERSION",
        "operator/elastic_pytorch_operator/__init__.py",
    ):
        copy(file, tmp_path)
    packages = [f"{folder}/pyproject.toml" for folder in ("worker_image", "plugin", "local")]
    for file in (*packages, "charts/elastic-pytorch-operator/Chart.yaml"):
        copy(file, tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [tmp_path / "hack" / "version.sh", version], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode == 0) == accepted, done.stderr
    assert set(versions(tmp_path).values()) == {version if accepted else VERSION}
    assert (tmp_path / "VERSION").read_text().strip() == (version if accepted else VERSION)


def copy(file: str, root: Path) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / file, root / file)
