import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from tests.paths import ROOT

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    where = [
        "--uri",
        "https://example.org/a.tar.gz",
        "--homepage",
        "https://example.org",
        "--output",
        str(folder),
    ]
    subprocess.run(
        [sys.executable, str(ROOT / "hack" / "krew" / "release.py"), *where],
        check=True,
        timeout=100,
    )
    return folder


def test_the_manifest_names_the_archive(release: Path) -> None:
    manifest = yaml.safe_load((release / "epj.yaml").read_text())
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "epj")
    (platform,) = manifest["spec"]["platforms"]
    archive = (release / "kubectl-epj.tar.gz").read_bytes()
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert platform["uri"] == "https://example.org/a.tar.gz"
    assert len(manifest["spec"]["shortDescription"]) <= 50
    with tarfile.open(release / "kubectl-epj.tar.gz") as tar:
        assert platform["bin"] in tar.getnames()
        assert any(name.endswith(".whl") for name in tar.getnames())


def test_the_wheel_has_the_page_and_serves_it_from_an_archive(
    release: Path, tmp_path: Path
) -> None:
    with tarfile.open(release / "kubectl-epj.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(name).name for name in archive.namelist() if "/page/static/" in name}
    assert packed == {
        file.name
        for file in (ROOT / "plugin" / "elastic_pytorch_client" / "page" / "static").iterdir()
    }
    code = (
        "from importlib.resources import files; print((files('elastic_pytorch_client.page') "
        "/ 'static' / 'page.js').read_text()[:2])"
    )
    surroundings = {**os.environ, "PYTHONPATH": str(wheel)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout == "//\n"


def launch(release: Path, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Calls the launcher by a link, as krew does."""
    with tarfile.open(release / "kubectl-epj.tar.gz") as tar:
        tar.extractall(tmp_path / "store", filter="data")
    (tmp_path / "kubectl-epj").symlink_to("store/kubectl-epj")
    surroundings = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), **environment}
    command = [str(tmp_path / "kubectl-epj"), "--version"]
    return subprocess.run(
        command, env=surroundings, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ('echo "No module named venv"; exit 1', "error: cannot install them: No module named venv"),
        ("exit 1", "error: kubectl epj needs Python 3.11 or newer as python3"),
    ],
)
def test_a_first_call_that_cannot_install_says_so_and_leaves_nothing(
    python: str, said: str, release: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    good = 'test "$1" = -c && exit 0\n' if "venv" in python else ""
    (tmp_path / "bin" / "python3").write_text(f"#!/bin/sh\n{good}{python}\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    done = launch(release, tmp_path, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == said
    assert not list((tmp_path / "data").glob("*/*"))


def test_later_calls_use_what_is_installed(release: Path, tmp_path: Path) -> None:
    version = yaml.safe_load((release / "epj.yaml").read_text())["spec"]["version"].removeprefix(
        "v"
    )
    home = tmp_path / "data" / "kubectl-epj" / version / "bin"
    home.mkdir(parents=True)
    (home / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home / "python").chmod(0o755)
    done = launch(release, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"kubectl epj {Version(version)}"), (
        "as Python writes the version"
    )
