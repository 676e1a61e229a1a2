"""Rules of the repository itself."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.documentation import found_in
from tests.faults import assert_none
from tests.paths import ROOT


def test_operator_folder_never_shadows_pythons_operator() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, collections; assert operator.add(1, 2) == 3"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_lock_files_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime, dev = project["project"]["dependencies"], project["dependency-groups"]["dev"]
    beside = [
        wanted
        for folder in ("plugin", "local")
        for wanted in tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"][
            "dependencies"
        ]
        if not wanted.startswith("elastic-pytorch")  # is in this checkout
    ]
    for lock, wanted in (
        ("requirements.lock", runtime),
        ("requirements-dev.lock", [*runtime, *dev, *beside]),
    ):
        pinned = {}
        for line in (ROOT / lock).read_text().splitlines():
            if line and not line.startswith((" ", "#")):
                name, _, version = line.split(" ")[0].partition("==")
                pinned[name] = Version(version)
        for requirement in map(Requirement, wanted):
            name = requirement.name.lower().replace("_", "-")
            assert name in pinned, f"{lock} lacks {requirement}: run `make lock`"
            assert requirement.specifier.contains(pinned[name]), (
                f"{lock} does not satisfy {requirement}: run `make lock`"
            )


def test_every_rule_of_planning_has_a_test_module_of_its_own() -> None:
    rules, tests = (
        ROOT / "operator" / "elastic_pytorch_operator" / "planning",
        ROOT / "tests" / "operator" / "planning",
    )
    whole_plans = {"plan_rounds", "plan_workers"}  # test_plan*.py
    modules = [
        path.relative_to(rules)
        for path in rules.rglob("*.py")
        if path.stem not in {"__init__", *whole_plans}
    ]
    assert not [
        str(path) for path in modules if not (tests / path.parent / f"test_{path.stem}.py").exists()
    ]


def test_random_tests_have_their_number_of_examples_from_the_profile() -> None:
    own_number = re.compile(r"settings\(.*(?:max_examples=(?!examples\()|deadline=)")
    assert_none(place for _, place, _ in found_in((ROOT / "tests").rglob("test_*.py"), own_number))


def test_types_of_all_programs_of_maintainers_are_checked() -> None:
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    checked = {name.partition(".")[0] for name in (*mypy["packages"], *mypy["modules"])}
    programs = {
        path.relative_to(ROOT / "hack").parts[0].removesuffix(".py")
        for path in (ROOT / "hack").rglob("*.py")
    }
    assert programs <= checked


def test_modules_are_short_enough_to_be_read_in_one_sitting() -> None:
    sources = [
        p
        for folder in ("operator", "worker_image", "plugin", "local", "hack", "examples", "tests")
        for p in (ROOT / folder).rglob("*.py")
    ]
    long = [
        f"{path.relative_to(ROOT)}: {count}"
        for path in sources
        if (count := len(path.read_text().splitlines())) > 400
    ]
    assert not long


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that are imported with a module, and names in them, which may be modules, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (
                f"{child.module}",
                *(f"{child.module}.{alias.name}" for alias in child.names),
            )
        elif isinstance(child, (ast.Try, ast.ClassDef)):
            yield from imported(child)


@cache
def imports_torch(path: Path) -> bool:
    names = set(imported(ast.parse(path.read_text())))
    files = [
        base / f"{name.replace('.', '/')}.py"
        for name in names
        for base in (ROOT, ROOT / "worker_image")
    ]
    return any(name.partition(".")[0] == "torch" for name in names) or any(
        imports_torch(f) for f in files if f.is_file()
    )


def test_modules_that_import_torch_are_marked() -> None:
    modules = list((ROOT / "tests").rglob("test_*.py"))
    unmarked = [
        str(path.relative_to(ROOT))
        for path in modules
        if "mark.torch" not in path.read_text() and imports_torch(path)
    ]
    assert not unmarked, "pytestmark = pytest.mark.torch"
    assert not imports_torch(ROOT / "tests/worker_image/conftest.py"), (
        "or all tests of the folder import torch"
    )
