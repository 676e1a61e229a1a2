"""`make release`, twice, with a registry of this machine; then what a user does with it.

It takes the checkout as it is, and builds without Docker's cache.
"""

import base64
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from tests.chart.chart_rendering import HELM, container_of
from tests.documentation import block
from tests.paths import ROOT
from tests.release.ci_identity import job_with_identity
from tests.release.registry import running_registry

pytestmark = pytest.mark.long

VERSION = (ROOT / "VERSION").read_text().strip()
OPERATOR, AGENT = IMAGES = ("elastic-pytorch-operator", "elastic-pytorch-agent")
CHART = f"charts/{OPERATOR}"
REGCTL = ROOT / ".cluster" / "bin" / "regctl"
COSIGN = ROOT / ".cluster" / "bin" / "cosign"
INSTALL = ROOT / "docs" / "operate" / "install.md"
EACH = f"for name in {OPERATOR} {AGENT} {CHART}; do\n"  # the first line of blocks of that page
IDENTITY = f"https://github.com/OWNER/REPOSITORY/.github/workflows/release.yml@refs/tags/v{VERSION}"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAKE_KEY = ["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out"]
AARCH64 = 0xB7  # e_machine of an ELF file


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=3600,
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
    run(*MAKE_KEY, path)
    return path


@pytest.fixture(scope="module")
def public_key(key: Path) -> Path:
    """The public half, where a user has it: in a folder of its own."""
    path = key.parent / "public" / "release-key.pub"
    path.parent.mkdir()
    run("openssl", "pkey", "-in", key, "-pubout", "-out", path)
    return path


@pytest.fixture(scope="module")
def ci_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a CI job that has an identity."""
    with job_with_identity(IDENTITY, tmp_path_factory.mktemp("identity")) as environment:
        yield environment


@pytest.fixture(scope="module")
def releases(
    registry: str, key: Path, ci_job: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Two equal releases of this checkout: a key signs the first, a CI job the second."""
    password = {"COSIGN_PASSWORD": "of the test"}
    prefix = ("--output-key-prefix", key.parent / "cosign")
    run(COSIGN, "import-key-pair", "--key", key, *prefix, **password)
    signers = [{"COSIGN_KEY": str(key.parent / "cosign.key"), **password}, ci_job]
    made = [tmp_path_factory.mktemp(name) / "dist" for name in ("first", "second")]
    request = {
        "VERSION": VERSION,
        "REGISTRY": f"{registry}/ml",
        "PUSH": "1",
        "PLAIN_HTTP": "1",
        "ALLOW_DIRTY": "1",
        "NO_CACHE": "1",
        "SIGNING_KEY": str(key),
    }
    for dist, signer in zip(made, signers, strict=True):
        said = run("hack/release/release.sh", DIST=str(dist), **signer, **request)
        print(said)
        assert (dist / "images.txt").read_text() in said
    return made


@pytest.fixture(scope="module")
def dist(releases: list[Path]) -> Path:
    return releases[-1]


def regctl(registry: str, *arguments: str | Path) -> str:
    return run(REGCTL, "--host", f"reg={registry},tls=disabled", *arguments)


def images_of(dist: Path) -> dict[str, str]:
    """The digest of each image that images.txt lists."""
    lines = (dist / "images.txt").read_text().split()
    return {
        reference.split("/")[-1].split(":")[0]: digest
        for reference, digest in (line.split("@") for line in lines)
    }


def test_two_releases_of_one_commit_are_the_same_to_the_byte(releases: list[Path]) -> None:
    first, second = ((dist / "SHA256SUMS").read_text().splitlines() for dist in releases)
    assert first == second


def test_files_are_those_that_were_signed(dist: Path, public_key: Path) -> None:
    signature = ("-signature", "SHA256SUMS.sig", "SHA256SUMS")
    verified = run("openssl", "dgst", "-sha256", "-verify", public_key, *signature, cwd=dist)
    assert verified == "Verified OK\n"
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
    assert {f"sha256:{said[name]}" for name in said if name not in files} == set(
        images_of(dist).values()
    )


def test_chart_of_the_registry_names_the_images_of_the_registry_by_digest(
    registry: str, dist: Path
) -> None:
    assert HELM is not None
    chart = ("oci://" + f"{registry}/ml/{CHART}", "--version", VERSION, "--plain-http")
    rendered = run(HELM, "template", "release", *chart, "--kube-version=1.34.0")
    container = container_of([found for found in yaml.safe_load_all(rendered) if found])
    agent = next(
        variable["value"] for variable in container["env"] if variable["name"] == "AGENT_IMAGE"
    )
    assert [container["image"], agent] == [
        f"{registry}/ml/{name}@{images_of(dist)[name]}" for name in IMAGES
    ]
    for name, reference in zip(IMAGES, (container["image"], agent), strict=True):
        assert regctl(registry, "image", "digest", reference).strip() == images_of(dist)[name]


def as_user(text: str, registry: str, folder: Path, **environment: str) -> str:
    """Runs commands of docs/operate/install.md with a registry that has no TLS."""
    (folder / "regctl.json").write_text(json.dumps({"hosts": {registry: {"tls": "disabled"}}}))
    environment |= {
        "REGCTL_CONFIG": str(folder / "regctl.json"),
        "COSIGN_ALLOW_HTTP_REGISTRY": "true",
    }
    environment |= {"PATH": f"{COSIGN.parent}:{os.environ['PATH']}"}
    for written, value in (
        ("VERSION", VERSION),
        ("REGISTRY", f"{registry}/ml"),
        ("MIRROR", f"{registry}/signed"),
    ):
        text = text.replace(written, value)
    return run("bash", "-euo", "pipefail", "-c", text, cwd=folder, **environment)


def verify(key: Path, image: str, *options: str) -> subprocess.CompletedProcess[str]:
    insecure = ("--allow-http-registry", "--insecure-ignore-tlog")
    command = [COSIGN, *(options or ["verify"]), *insecure, "--key", key, image]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.usefixtures("dist")
def test_key_verifies_images_chart_provenance_and_packages(registry: str, public_key: Path) -> None:
    as_user(block(INSTALL, f"{EACH}  cosign verify --key"), registry, public_key.parent)


@pytest.mark.usefixtures("dist")
def test_identity_of_a_ci_job_verifies_images_without_a_key(
    registry: str, ci_job: dict[str, str], tmp_path: Path
) -> None:
    without_logs = {"COSIGN_INSECURE_IGNORE_TLOG": "true", "COSIGN_INSECURE_IGNORE_SCT": "true"}
    trust = {"COSIGN_TRUSTED_ROOT": ci_job["COSIGN_TRUSTED_ROOT"], **without_logs}
    as_user(block(INSTALL, "cosign verify --certificate-identity"), registry, tmp_path, **trust)


@pytest.mark.parametrize("name", IMAGES)
def test_attestations_are_the_provenance_and_the_packages_of_each_platform(
    name: str, registry: str, dist: Path, public_key: Path
) -> None:
    def predicates(kind: str) -> list[Any]:
        printed = verify(
            public_key, f"{registry}/ml/{name}:{VERSION}", "verify-attestation", "--type", kind
        ).stdout
        statements = [
            json.loads(base64.b64decode(json.loads(line)["payload"]))
            for line in printed.splitlines()
        ]
        return [statement["predicate"] for statement in statements]

    assert predicates("slsaprovenance1") == [
        json.loads((dist / "provenance.json").read_text())["predicate"]
    ]
    packages = [json.loads(path.read_text()) for path in dist.glob(f"{name}-*.spdx.json")]
    namespace = itemgetter("documentNamespace")
    assert sorted(predicates("spdxjson"), key=namespace) == sorted(packages, key=namespace)


def test_signatures_and_attestations_are_referrers(registry: str, dist: Path) -> None:
    for name in (*IMAGES, CHART):
        image, shape = f"{registry}/ml/{name}:{VERSION}", ("--format", "{{json .Manifest}}")
        listed = regctl(registry, "artifact", "list", image, *shape)
        attested = 1 + len(list(dist.glob(f"{name}-*.spdx.json"))) if name in IMAGES else 0
        types = [referrer["artifactType"] for referrer in json.loads(listed)["manifests"]]
        assert types == [BUNDLE] * 2 * (1 + attested), "of each release"


def test_changed_image_is_refused_with_the_signatures_of_the_original(
    registry: str, dist: Path, public_key: Path
) -> None:
    changed = f"{registry}/ml/{AGENT}:changed"
    original = f"{registry}/ml/{AGENT}@{images_of(dist)[AGENT]}"
    regctl(registry, "image", "mod", original, "--create", changed, "--label", "a=b")
    assert BUNDLE in regctl(registry, "artifact", "list", changed)
    refused = verify(public_key, changed)
    assert refused.returncode != 0
    assert "artifact digest does not match any digest in statement" in refused.stderr


def test_unsigned_image_and_another_key_are_refused(
    registry: str, dist: Path, public_key: Path, tmp_path: Path
) -> None:
    signed, unsigned = (
        f"{registry}/{folder}/{AGENT}@{images_of(dist)[AGENT]}" for folder in ("ml", "unsigned")
    )
    regctl(registry, "image", "copy", signed, unsigned)
    refused = verify(public_key, unsigned)
    assert (refused.returncode != 0, "no signatures found" in refused.stderr) == (True, True)
    private = tmp_path / "other.pem"
    run(*MAKE_KEY, private)
    run("openssl", "pkey", "-in", private, "-pubout", "-out", tmp_path / "other.pub")
    refused = verify(tmp_path / "other.pub", signed)
    assert (refused.returncode != 0, "could not verify envelope" in refused.stderr) == (True, True)


@pytest.mark.usefixtures("dist")
def test_mirror_has_the_signatures_if_they_are_copied_too(registry: str, public_key: Path) -> None:
    as_user(block(INSTALL, f"{EACH}  regctl image copy --referrers"), registry, public_key.parent)
    for name in (*IMAGES, CHART):
        verified = verify(public_key, f"{registry}/signed/{name}:{VERSION}")
        assert verified.returncode == 0, verified.stderr


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
        volume = ("--volume", f"{tmp_path}:/agent")
        run("docker", "run", "--rm", "--read-only", *volume, agent, "/agent")
    finally:
        run("docker", "image", "rm", "--force", operator, agent)
    assert (tmp_path / "elastic_pytorch" / "agent" / "__main__.py").is_file()


def test_agents_image_is_for_both_architectures(registry: str, tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    image = f"{registry}/ml/{AGENT}:{VERSION}"
    platform = ("--platform", "linux/arm64")
    regctl(registry, "image", "get-file", *platform, image, "bin/busybox", busybox)
    assert busybox.read_bytes()[18] == AARCH64


@pytest.mark.parametrize(
    ("image", "contained"),
    [
        (f"{OPERATOR}-amd64", {"libpython3.11-stdlib", "kopf"}),
        (f"{AGENT}-amd64", {"busybox-static", "elastic-pytorch"}),
        (f"{AGENT}-arm64", {"busybox-static", "elastic-pytorch"}),
    ],
)
def test_bill_of_materials_lists_packages_of_debian_and_of_python(
    image: str, contained: set[str], dist: Path
) -> None:
    document = json.loads((dist / f"{image}.spdx.json").read_text())
    assert contained <= {package["name"] for package in document["packages"]}


def test_packages_can_be_installed(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    packages = ("", "_client", "_operator", "_local")
    wheels = [wheel for name in packages for wheel in dist.glob(f"elastic_pytorch{name}-*.whl")]
    assert len(wheels) == 4
    programs = tmp_path / "bin"
    run(programs / "pip", "install", "--quiet", *wheels)
    said = run(programs / "kubectl-epj", "--version").strip()
    assert said == f"kubectl epj {Version(VERSION)}"
    said = run(programs / "python", "-m", "elastic_pytorch_operator", "--version").strip()
    assert said == VERSION
    assert "job's manifest" in run(programs / "python", "-m", "elastic_pytorch_local", "--help")


def test_source_distributions_make_the_same_wheels_as_the_checkout(
    dist: Path, tmp_path: Path
) -> None:
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    for source in dist.glob("*.tar.gz"):
        if source.name.startswith("elastic"):
            options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
            wheel = (sys.executable, "-m", "pip", "wheel", *options, source)
            run(*wheel, SOURCE_DATE_EPOCH=epoch)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in dist.glob("*.whl")}
