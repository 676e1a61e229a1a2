"""What the images are built from, read without building them; the end-to-end tests run them."""

import re

import pytest

from tests.paths import ROOT

FILES = ["Dockerfile", "worker_image/Dockerfile", "worker_image/agent.Dockerfile"]


def instructions(file: str) -> list[str]:
    """The instructions of a Dockerfile, each in one line, without comments."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE)
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("file", FILES)
def test_user_is_a_number_so_that_run_as_non_root_can_be_checked(file: str) -> None:
    *_, user = [line for line in instructions(file) if line.startswith("USER ")]
    assert re.fullmatch(r"USER [1-9][0-9]*:[1-9][0-9]*", user)


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_for_one_architecture_only(file: str) -> None:
    assert not re.findall(r"amd64|x86_64|arm64|aarch64", "\n".join(instructions(file)))


def test_wheels_of_another_architecture_in_the_build_context_do_no_harm() -> None:
    (install,) = [
        line for line in instructions("Dockerfile") if "/opt/venv/bin/pip install" in line
    ]
    assert "--no-index" not in install, (
        "only on request: the package index has the wheels of every architecture"
    )
    assert "$PIP_OPTIONS" in install
    assert 'ARG PIP_OPTIONS=""' in instructions("Dockerfile")
    assert "PIP_OPTIONS=--no-index" in (ROOT / "hack" / "images" / "build.sh").read_text()


def test_agents_image_copies_the_agent_to_the_folder_that_is_its_argument() -> None:
    *_, entry = instructions("worker_image/agent.Dockerfile")
    assert entry == 'ENTRYPOINT ["/bin/busybox", "cp", "-R", "/opt/elastic-pytorch/."]'
    assert "FROM scratch AS base" in instructions("worker_image/agent.Dockerfile"), (
        "nothing beside what copies"
    )


@pytest.mark.parametrize("file", ["Dockerfile", "worker_image/agent.Dockerfile"])
def test_image_says_which_version_it_is(file: str) -> None:
    *before, _ = "\n".join(instructions(file)).partition(
        "LABEL org.opencontainers.image.version=$VERSION "
    )
    assert before[0].endswith("ARG VERSION=unknown\n"), (
        "an argument holds only in the stage that declares it"
    )
    assert before[1]
    assert (
        '--build-arg "VERSION=$(<VERSION)"' in (ROOT / "hack" / "images" / "build.sh").read_text()
    )
