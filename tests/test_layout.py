"""Rules of the repository itself."""

import subprocess
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

from tests.paths import ROOT


def test_operator_folder_never_shadows_pythons_operator() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, collections; assert operator.add(1, 2) == 3"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_lock_files_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime, dev = project["project"]["dependencies"], project["dependency-groups"]["dev"]
    client = tomllib.loads((ROOT / "plugin" / "pyproject.toml").read_text())["project"]
    clients = [*client["dependencies"], *client["optional-dependencies"]["png"]]
    for lock, wanted in (("requirements.lock", runtime), ("requirements-dev.lock", [*runtime, *dev, *clients])):
        pinned = {}
        for line in (ROOT / lock).read_text().splitlines():
            if line and not line.startswith((" ", "#")):
                name, _, version = line.split(" ")[0].partition("==")
                pinned[name] = Version(version)
        for requirement in map(Requirement, wanted):
            name = requirement.name.lower().replace("_", "-")
            assert name in pinned, f"{lock} lacks {requirement}: run `make lock`"
            assert requirement.specifier.contains(pinned[name]), f"{lock} does not satisfy {requirement}: run `make lock`"


def test_every_rule_of_planning_has_a_test_module_of_its_own() -> None:
    rules, tests = ROOT / "operator" / "elastic_pytorch_operator" / "planning", ROOT / "tests" / "operator" / "planning"
    whole_plans = {"memory", "plan_rounds", "plan_ended"}  # test_plan*.py
    modules = [path.relative_to(rules) for path in rules.rglob("*.py") if path.stem not in {"__init__", *whole_plans}]
    assert not [str(path) for path in modules if not (tests / path.parent / f"test_{path.stem}.py").exists()]


def test_modules_are_short_enough_to_be_read_in_one_sitting() -> None:
    sources = [
        p
        for folder in ("operator", "worker_image", "plugin", "hack", "examples", "tests")
        for p in (ROOT / folder).rglob("*.py")
    ]
    long = [f"{path.relative_to(ROOT)}: {count}" for path in sources if (count := len(path.read_text().splitlines())) > 400]
    assert not long
