"""Modules that the pages name are there."""

import re
from pathlib import Path

import pytest

from tests.documentation import found_in
from tests.faults import assert_none
from tests.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = [path.parent for path in ROOT.glob("*/elastic_pytorch*/__init__.py")]
SCRIPTS_OF_USERS = ("train.py", "train_elastic.py")
OTHER_THINGS = {"spec", "state"}  # `spec.replicas` is a field, `state.commit` a method
FILE = re.compile(r"`([\w./-]+\.py)`")  # `planning/rounds/next_round.py`
MODULE = re.compile(r"`(?:python -m )?([a-z_]+(?:\.[a-z_]+)+)`")  # `planning.rounds.next_round`


def is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def is_known(name: str) -> bool:
    """Whether a dotted name is a module or what a package offers, or none of this project's."""
    first, *rest = name.split(".")
    for package in PACKAGES:
        if first == package.name:
            return is_module(package.joinpath(*rest)) or (
                len(rest) == 1 and f'"{rest[0]}"' in (package / "__init__.py").read_text()
            )
    holders = [package for package in PACKAGES if (package / first / "__init__.py").is_file()]
    if not holders or first in OTHER_THINGS or name.startswith("model.pt"):
        return True
    return any(is_module(package.joinpath(first, *rest)) for package in holders)


def is_file(name: str) -> bool:
    """Whether a name is the path of a file or a script of users."""
    return (
        any((folder / name).is_file() for folder in (ROOT, *PACKAGES))
        if "/" in name
        else name in SCRIPTS_OF_USERS
    )


def test_files_are_there_and_named_by_their_paths() -> None:
    assert_none(
        f"{place}: {file[1]}" for _, place, file in found_in(PAGES, FILE) if not is_file(file[1])
    )


def test_modules_are_there() -> None:
    assert_none(
        f"{place}: {module[1]}"
        for _, place, module in found_in(PAGES, MODULE)
        if not is_known(module[1])
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("planning.rounds.next_round", True),
        ("planning.rounds.last_round", False),
        ("planning.next_round", False),
        ("elastic_pytorch.agent", True),
        ("elastic_pytorch.report", True),
        ("elastic_pytorch.no_such_module", False),
        ("elastic_pytorch_client.reading.timeline", True),
        ("elastic_pytorch_operator.planner", False),
        ("spec.replicas", True),
        ("torch.distributed", True),
    ],
)
def test_known_names(name: str, known: bool) -> None:
    assert is_known(name) is known
