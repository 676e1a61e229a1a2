"""The workflows do what the Makefile does, and nothing else; `make check` runs actionlint on them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_each_command_is_one_target_of_the_makefile(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        make, target, *variables = command.split()
        assert make == "make"
        assert target in TARGETS
        assert all("=" in variable for variable in variables)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_token_of_a_workflow_may_only_read(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_only_what_publishes_gets_a_token_of_its_identity() -> None:
    jobs = {path.stem: yaml.safe_load(path.read_text())["jobs"].values() for path in WORKFLOWS}
    permitted = {name for name in jobs for job in jobs[name] if "id-token" in job.get("permissions", {})}
    assert permitted == {"release", "site"}


def test_dependabot_looks_where_there_is_something_to_update() -> None:
    files = {"pip": "pyproject.toml", "docker": "*Dockerfile", "gomod": "go.mod", "github-actions": ".github/workflows/*.yml"}
    for update in yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]:
        for directory in update.get("directories") or [update["directory"]]:
            assert list((ROOT / directory.strip("/")).glob(files[update["package-ecosystem"]])), directory
