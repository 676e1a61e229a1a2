"""What `make release` refuses before it builds anything."""

import os
import subprocess

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.process

VERSION = (ROOT / "VERSION").read_text().strip()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "Usage: make release VERSION=0.3.0 REGISTRY=registry.example.com/ml [PUSH=1]"),
        ({"VERSION": VERSION}, "Usage: make release VERSION=0.3.0 REGISTRY=registry.example.com/ml [PUSH=1]"),
        ({"VERSION": VERSION, "REGISTRY": "https://A"}, "REGISTRY is 'https://A': write a host and a path in lower case"),
        ({"VERSION": VERSION, "REGISTRY": "a/"}, "REGISTRY is 'a/': write a host and a path in lower case"),
        (
            {"VERSION": "9.9.9", "REGISTRY": "a"},
            f"The file VERSION says {VERSION}: run `make version VERSION=9.9.9` and commit it.",
        ),
        ({"VERSION": VERSION, "REGISTRY": "a", "SIGNING_KEY": "/none"}, "SIGNING_KEY is /none, which cannot be read."),
        ({"VERSION": VERSION, "REGISTRY": "a", "COSIGN_KEY": "/none"}, "COSIGN_KEY is /none, which cannot be read."),
        (
            {"VERSION": VERSION, "REGISTRY": "a", "PLATFORMS": "linux/s390x"},
            "PLATFORMS has linux/s390x: the platforms are linux/amd64 and linux/arm64.",
        ),
    ],
)
def test_request_that_cannot_be_met_is_refused_with_what_to_write(request_: dict[str, str], said: str) -> None:
    done = subprocess.run(
        [ROOT / "hack" / "release" / "release.sh"],
        env=os.environ | request_,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(said)
