"""`make release`, twice, with a registry of this machine; then what a user does with its files and its registry, on no cluster.

It takes the checkout as it is, and builds without Docker's cache.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from tests.chart.chart_rendering import HELM, container_of
from tests.paths import ROOT
from tests.release.registry import running_registry

pytestmark = pytest.mark.long

VERSION = (ROOT / "VERSION").read_text().strip()
OPERATOR, AGENT = IMAGES = ("elastic-pytorch-operator", "elastic-pytorch-agent")
REGCTL = ROOT / ".cluster" / "bin" / "regctl"
AARCH64 = 0xB7  # e_machine of an ELF file


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Returns what a program prints, if it succeeds."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False, timeout=3600
    )
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key.pem"
    run("openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", path)
    return path


@pytest.fixture(scope="module")
def releases(registry: str, key: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two releases of this checkout; each is pushed."""
    made = [tmp_path_factory.mktemp(name) / "dist" for name in ("first", "second")]
    request = {"VERSION": VERSION, "REGISTRY": f"{registry}/ml", "PUSH": "1", "PLAIN_HTTP": "1", "SIGNING_KEY": str(key)}
    for dist in made:
        print(run("hack/release/release.sh", DIST=str(dist), ALLOW_DIRTY="1", NO_CACHE="1", **request))
    return made


@pytest.fixture(scope="module")
def dist(releases: list[Path]) -> Path:
    return releases[-1]


def regctl(registry: str, *arguments: str | Path) -> str:
    return run(REGCTL, "--host", f"reg={registry},tls=disabled", *arguments)


def images_of(dist: Path) -> dict[str, str]:
    """The digest of each image that images.txt lists."""
    lines = (dist / "images.txt").read_text().split()
    return {reference.split("/")[-1].split(":")[0]: digest for reference, digest in (line.split("@") for line in lines)}


def test_two_releases_of_one_commit_are_the_same_to_the_byte(releases: list[Path]) -> None:
    first, second = ((dist / "SHA256SUMS").read_text().splitlines() for dist in releases)
    assert first == second


def test_files_are_those_that_were_signed(dist: Path, key: Path) -> None:
    (dist.parent / "release-key.pub").write_text(run("openssl", "pkey", "-in", key, "-pubout"))
    verify = ("openssl", "dgst", "-sha256", "-verify", "../release-key.pub", "-signature", "SHA256SUMS.sig", "SHA256SUMS")
    assert run(*verify, cwd=dist) == "Verified OK\n"
    run("sha256sum", "--check", "SHA256SUMS", cwd=dist)
    listed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert {path.name for path in dist.iterdir()} == listed | {"SHA256SUMS", "SHA256SUMS.sig"}


def test_provenance_names_each_file_and_each_image(dist: Path) -> None:
    said = {
        subject["name"]: subject["digest"]["sha256"]
        for subject in json.loads((dist / "provenance.json").read_text())["subject"]
    }
    files = dict(reversed(line.split()) for line in (dist / "SHA256SUMS").read_text().splitlines())
    del files["provenance.json"]
    assert files.items() <= said.items()
    assert {f"sha256:{said[name]}" for name in said if name not in files} == set(images_of(dist).values())


def test_chart_of_the_registry_names_the_images_of_the_registry_by_digest(registry: str, dist: Path) -> None:
    assert HELM is not None
    chart = ("oci://" + f"{registry}/ml/charts/elastic-pytorch-operator", "--version", VERSION, "--plain-http")
    rendered = run(HELM, "template", "release", *chart, "--kube-version=1.34.0")
    container = container_of([found for found in yaml.safe_load_all(rendered) if found])
    agent = next(variable["value"] for variable in container["env"] if variable["name"] == "AGENT_IMAGE")
    assert [container["image"], agent] == [f"{registry}/ml/{name}@{images_of(dist)[name]}" for name in IMAGES]
    for name, reference in zip(IMAGES, (container["image"], agent), strict=True):
        assert regctl(registry, "image", "digest", reference).strip() == images_of(dist)[name]


def test_archives_bring_the_same_images_to_a_mirror(registry: str, dist: Path) -> None:
    for name in IMAGES:
        mirrored = f"{registry}/mirror/{name}:{VERSION}"
        regctl(registry, "image", "import", mirrored, dist / f"{name}-{VERSION}.oci.tar")
        assert regctl(registry, "image", "digest", mirrored).strip() == images_of(dist)[name]


def test_images_of_the_registry_run(registry: str, dist: Path, tmp_path: Path) -> None:
    operator, agent = (f"{registry}/ml/{name}@{images_of(dist)[name]}" for name in IMAGES)
    tmp_path.chmod(0o777)
    try:
        assert run("docker", "run", "--rm", "--read-only", operator, "--version").strip() == VERSION
        run("docker", "run", "--rm", "--read-only", "--volume", f"{tmp_path}:/agent", agent, "/agent")
    finally:
        run("docker", "image", "rm", "--force", operator, agent)
    assert (tmp_path / "elastic_pytorch" / "agent" / "__main__.py").is_file()


def test_agents_image_is_for_both_architectures(registry: str, tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    image = f"{registry}/ml/{AGENT}:{VERSION}"
    regctl(registry, "image", "get-file", "--platform", "linux/arm64", image, "bin/busybox", busybox)
    assert busybox.read_bytes()[18] == AARCH64


@pytest.mark.parametrize(
    ("image", "contained"),
    [
        (f"{OPERATOR}-amd64", {"libpython3.11-stdlib", "kopf"}),
        (f"{AGENT}-amd64", {"busybox-static", "elastic-pytorch"}),
        (f"{AGENT}-arm64", {"busybox-static", "elastic-pytorch"}),
    ],
)
def test_bill_of_materials_lists_packages_of_debian_and_of_python(image: str, contained: set[str], dist: Path) -> None:
    document = json.loads((dist / f"{image}.spdx.json").read_text())
    assert contained <= {package["name"] for package in document["packages"]}


def test_packages_can_be_installed(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    wheels = [
        *dist.glob("elastic_pytorch_client-*.whl"),
        *dist.glob("elastic_pytorch-*.whl"),
        *dist.glob("elastic_pytorch_operator-*.whl"),
        *dist.glob("elastic_pytorch_local-*.whl"),
    ]
    assert len(wheels) == 4
    run(tmp_path / "bin" / "pip", "install", "--quiet", *wheels)
    said = run(tmp_path / "bin" / "kubectl-epj", "--version").strip()
    assert said == f"kubectl epj {Version(VERSION)}"
    assert run(tmp_path / "bin" / "python", "-m", "elastic_pytorch_operator", "--version").strip() == VERSION
    assert "job's manifest" in run(tmp_path / "bin" / "python", "-m", "elastic_pytorch_local", "--help")


def test_source_distributions_make_the_same_wheels_as_the_checkout(dist: Path, tmp_path: Path) -> None:
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    for source in dist.glob("*.tar.gz"):
        if source.name.startswith("elastic"):
            command = [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
                "--wheel-dir",
                tmp_path,
                source,
            ]
            run(*command, SOURCE_DATE_EPOCH=epoch)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in dist.glob("*.whl")}
