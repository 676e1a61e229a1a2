"""With what a release signs what it pushes, and who learns the secrets of it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.process

KEY = ["--key", "env://COSIGN_PRIVATE_KEY", "--tlog-upload=false", "--use-signing-config=false"]
TOKEN = {"ACTIONS_ID_TOKEN_REQUEST_TOKEN": "secret"}
COSIGN_KEY = {"COSIGN_KEY": "env://COSIGN_PRIVATE_KEY", "COSIGN_PRIVATE_KEY": "secret"}


def bash(script: str, environment: dict[str, str]) -> str:
    """What a script prints after it has chosen a signer for a release that is pushed."""
    command = ["bash", "-euc", f"source hack/release/signatures.sh; choose_signer; {script}"]
    variables = {"PATH": os.environ["PATH"], "PUSH": "1"} | environment
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, []),
        (TOKEN, ["--yes"]),
        ({"SIGSTORE_ID_TOKEN": "secret"}, ["--yes"]),
        (COSIGN_KEY, KEY),
        (TOKEN | COSIGN_KEY, KEY),
    ],
)
def test_key_signs_and_without_one_the_identity_of_the_ci_job(environment: dict[str, str], options: list[str]) -> None:
    assert bash('is_to_be_signed && printf "%s\\n" "${SIGNER[@]}" || true', environment).split() == options


def test_nothing_is_signed_that_is_not_pushed() -> None:
    assert bash("is_to_be_signed || echo no", COSIGN_KEY | {"PUSH": ""}) == "no\n"


def test_cosign_alone_gets_the_secrets(tmp_path: Path) -> None:
    stand_in = tmp_path / "cosign"
    stand_in.write_text("#!/bin/sh\necho cosign $*\nenv\n")
    stand_in.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    others, cosigns = bash("env; as_signer sign image@digest", TOKEN | COSIGN_KEY | path).split("cosign sign ")
    assert "=secret" not in others
    assert cosigns.startswith(f"{' '.join(KEY)} image@digest\n")
    assert {"ACTIONS_ID_TOKEN_REQUEST_TOKEN=secret", "COSIGN_PRIVATE_KEY=secret"} <= set(cosigns.splitlines())
