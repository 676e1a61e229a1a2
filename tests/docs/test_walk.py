"""The walk through the code in CONTRIBUTING.md leads to files that define what it names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.faults import assert_none
from tests.paths import ROOT

FOLDERS = [ROOT, *ROOT.glob("*/elastic_pytorch*/")]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
STATION = re.compile(r"^\d+\. `(?P<path>[\w./]+)`: (?P<sentence>.+)$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")


def walks() -> list[str]:
    """The text of each walk, without its heading."""
    section = PAGE.partition("\n## A walk through the code\n")[2].partition("\n## ")[0]
    return section.split("\n### ")[1:]


def defined(path: Path) -> set[str]:
    """The functions, classes, constants and attributes of a module, or the keys of another file."""
    if path.suffix != ".py":
        return set(re.findall(r"^ *(\w+):", path.read_text(), re.MULTILINE))
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def faults_of(station: re.Match[str]) -> Iterator[str]:
    files = [folder / station["path"] for folder in FOLDERS if (folder / station["path"]).is_file()]
    if len(files) != 1:
        yield f"{station['path']}: {len(files)} files have this path"
        return
    names = NAME.findall(station["sentence"])
    if not names:
        yield f"{station['path']}: the sentence names nothing"
    for name in names:
        if name not in defined(files[0]):
            yield f"{station['path']} does not define {name}"


def test_stations_are_files_that_define_what_their_sentences_name() -> None:
    assert_none(
        fault
        for walk in walks()
        for station in STATION.finditer(walk)
        for fault in faults_of(station)
    )


def test_two_walks_have_eight_to_fourteen_stations_each() -> None:
    found = [len(STATION.findall(walk)) for walk in walks()]
    assert len(found) == 2
    assert all(8 <= count <= 14 for count in found), found


def test_walks_are_short() -> None:
    assert sum(len(walk.split()) for walk in walks()) <= 450
