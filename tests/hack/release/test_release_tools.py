"""What a release refuses, signs and says of itself, and its workflows."""

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import provenance
import pytest
import yaml

from tests.paths import ROOT

pytestmark = pytest.mark.process

VERSION = (ROOT / "VERSION").read_text().strip()
DIGEST = "0" * 64
CHART, OPERATOR = (
    "charts/elastic-pytorch-operator/Chart.yaml",
    "operator/elastic_pytorch_operator/__init__.py",
)
PACKAGES = [f"{folder}/pyproject.toml" for folder in ("worker_image", "plugin", "local")]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}


def test_provenance_names_all_files_and_images_the_commit_and_each_base_image_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "images.txt").write_text(
        f"registry.example.com:5000/ml/agent:0.3.0@sha256:{DIGEST}\n"
    )
    (tmp_path / "a.whl").write_bytes(b"a")
    files = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()
    }
    assert provenance.subjects_of(tmp_path) == {
        **files,
        "registry.example.com:5000/ml/agent:0.3.0": DIGEST,
    }
    base = ("debian:bookworm-slim", f"sha256:{DIGEST}")
    said = provenance.statement({"b": "2", "a": "1"}, {"VERSION": "0.3.0"}, "c0ffee", [base, base])
    assert said["subject"] == [
        {"name": "a", "digest": {"sha256": "1"}},
        {"name": "b", "digest": {"sha256": "2"}},
    ]
    definition = said["predicate"]["buildDefinition"]
    source, *bases = definition["resolvedDependencies"]
    assert (definition["externalParameters"], source["digest"]) == (
        {"VERSION": "0.3.0"},
        {"gitCommit": "c0ffee"},
    )
    assert bases == [{"name": "debian:bookworm-slim", "digest": {"sha256": DIGEST}}]


def test_request_that_cannot_be_met_is_refused_with_what_to_write() -> None:
    asked = {"VERSION": VERSION, "REGISTRY": "a"}
    usage = "Usage: make release VERSION=0.3.0 REGISTRY=registry.example.com/ml [PUSH=1]"
    refusals: list[tuple[dict[str, str], str]] = [
        ({}, usage),
        (
            asked | {"REGISTRY": "https://A"},
            "REGISTRY is 'https://A': write a host and a path in lower case",
        ),
        (
            asked | {"VERSION": "9.9.9"},
            f"The file VERSION says {VERSION}: run `make version VERSION=9.9.9` and commit it.",
        ),
        (asked | {"SIGNING_KEY": "/none"}, "SIGNING_KEY is /none, which cannot be read."),
        (
            asked | {"PLATFORMS": "linux/s390x"},
            "PLATFORMS has linux/s390x: the platforms are linux/amd64 and linux/arm64.",
        ),
    ]
    for request, said in refusals:
        command = [ROOT / "hack" / "release" / "release.sh"]
        done = subprocess.run(
            command,
            env=os.environ | request,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr[: len(said)]) == (1, said), request


def test_key_signs_before_the_identity_of_the_ci_job_and_cosign_alone_gets_the_secrets(
    tmp_path: Path,
) -> None:
    (tmp_path / "cosign").write_text("#!/bin/sh\necho cosign $*\nenv\n")
    (tmp_path / "cosign").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def bash(script: str, environment: dict[str, str]) -> str:
        """What a script prints after it has chosen a signer for a release that is pushed."""
        command = ["bash", "-euc", f"source hack/release/signatures.sh; choose_signer; {script}"]
        variables = path | {"PUSH": "1"} | environment
        return subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    with_key = [
        "--key",
        "env://COSIGN_PRIVATE_KEY",
        "--tlog-upload=false",
        "--use-signing-config=false",
    ]
    token = {"ACTIONS_ID_TOKEN_REQUEST_TOKEN": "secret"}
    key = {"COSIGN_KEY": "env://COSIGN_PRIVATE_KEY", "COSIGN_PRIVATE_KEY": "secret"}
    options = [
        ({}, []),
        (token, ["--yes"]),
        ({"SIGSTORE_ID_TOKEN": "secret"}, ["--yes"]),
        (key, with_key),
        (token | key, with_key),
    ]
    options += [(key | {"PUSH": ""}, [])]
    show = 'is_to_be_signed && printf "%s\\n" "${SIGNER[@]}" || true'
    assert [(variables, bash(show, variables).split()) for variables, _ in options] == options
    others, cosigns = bash("env; as_signer sign image@digest", token | key).split("cosign sign ")
    assert "=secret" not in others
    assert cosigns.startswith(f"{' '.join(with_key)} image@digest\n")
    assert {"ACTIONS_ID_TOKEN_REQUEST_TOKEN=secret", "COSIGN_PRIVATE_KEY=secret"} <= set(
        cosigns.splitlines()
    )


def versions(root: Path) -> set[str]:
    chart = yaml.safe_load((root / CHART).read_text())
    packages = {tomllib.loads((root / file).read_text())["project"]["version"] for file in PACKAGES}
    (operator,) = re.findall(r'^__version__ = "(.+)"$', (root / OPERATOR).read_text(), re.MULTILINE)
    return {
        (root / "VERSION").read_text().strip(),
        *packages,
        operator,
        chart["version"],
        chart["appVersion"],
    }


def test_version_is_one_everywhere_and_make_version_writes_it_everywhere_or_nowhere(
    tmp_path: Path,
) -> None:
    assert versions(ROOT) == {VERSION}, f"run `make version VERSION={VERSION}`"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert project["dynamic"]["version"] == {"file": "VERSION"}
    others = [
        "Dockerfile",
        "worker_image/Dockerfile",
        "worker_image/agent.Dockerfile",
        "docs/operate/install.md",
    ]
    assert not [
        file
        for file in [*others, "docs/use/getting-started.md"]
        if VERSION in (ROOT / file).read_text()
    ]
    for file in (
        "hack/version.sh",
        "hack/settings.sh",
        "hack/step.sh",
        "VERSION",
        OPERATOR,
        CHART,
        *PACKAGES,
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    written = VERSION
    for version, accepted in {
        "v9.8.7": False,
        "9.8": False,
        "": False,
        "9.8.7": True,
        "9.8.7-dev": True,
    }.items():
        command = [tmp_path / "hack" / "version.sh", version]
        done = subprocess.run(
            command, env=environment, capture_output=True, check=False, timeout=60
        )
        written = version if accepted else written
        found = (done.returncode == 0, versions(tmp_path))
        assert found == (accepted, {written}), (version, done.stderr)


def test_workflows_run_targets_of_the_makefile_and_only_those_that_publish_get_a_token() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, workflow in WORKFLOWS.items():
        commands = [
            step["run"].split()
            for job in workflow["jobs"].values()
            for step in job["steps"]
            if "run" in step
        ]
        assert commands and workflow["permissions"] == {"contents": "read"}, name
        for make, target, *variables in commands:
            assert (
                make == "make"
                and target in targets
                and all("=" in variable for variable in variables)
            ), name
    jobs = {name: list(workflow["jobs"].values()) for name, workflow in WORKFLOWS.items()}
    assert {
        name for name in jobs for job in jobs[name] if "id-token" in job.get("permissions", {})
    } == {"release", "site"}
    files = {
        "pip": "pyproject.toml",
        "docker": "*Dockerfile",
        "gomod": "go.mod",
        "github-actions": ".github/workflows/*.yml",
    }
    for update in yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]:
        for directory in update.get("directories") or [update["directory"]]:
            assert list((ROOT / directory.strip("/")).glob(files[update["package-ecosystem"]])), (
                directory
            )
