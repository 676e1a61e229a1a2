"""The rules of prose in `.vale.ini`: where vale finds the refused words, and what it admits."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

VALE = shutil.which(
    "vale", path=f"{ROOT / '.cluster' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
)
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        VALE is None, reason="needs vale, on the PATH or in .cluster/bin: `make check` builds it"
    ),
]

PAGE = """# What nobody says
The renewal is made anew in
place of `nobody()`, [a link](somebody.md) and *once
more*.

    kubectl get nobody

| a cell |
|---|
| upon |
"""
MODULE = '''"""About the module.

    Whoever calls it looks
    after it.
"""
# In the place
# of a comment.
def f(x):
    raise ValueError(f"{x!r} is taken"
                     f" for a number\\nNobody {x} knows")
'''
SCHEMA = """spec:
  description: |-
    The first
    text, merely.
  pattern: somebody
  properties:
    description:
      description: whilst it
        lasts
    rules:
    - rule: self > 0
      message: seldom the second
"""
VALUES = """# About it, amid
# so
# many.
nobody: 1 # of its own, lest
  # Upon it.
"""


def check(folder: Path, name: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    command = [
        str(VALE),
        "--no-global",
        "--config",
        str(ROOT / ".vale.ini"),
        "--output=line",
        *options,
        name,
    ]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "docs/page.md",
            PAGE,
            {(1, "nobody"), (2, "anew"), (2, "in place of"), (3, "once more"), (10, "upon")},
        ),
        (
            "operator/module.py",
            MODULE,
            {
                (3, "Whoever"),
                (3, "looks after"),
                (6, "In the place of"),
                (9, 'taken" f" for'),
                (10, "Nobody"),
            },
        ),
        ("crds/schema.yaml", SCHEMA, {(4, "merely"), (8, "whilst"), (12, "seldom")}),
        (
            "charts/chart/values.yaml",
            VALUES,
            {(1, "amid"), (2, "so many"), (4, "lest"), (5, "Upon")},
        ),
        (
            "charts/chart/files/alerts.yaml",
            "- alert: Nobody\n  summary: Nobody leads.\n",
            {(2, "Nobody")},
        ),
        (
            "charts/chart/templates/NOTES.txt",
            "{{ .Values.x }} runs for\never.\n\n- anew\n",
            {(1, "for ever"), (4, "anew")},
        ),
        ("charts/chart/templates/job.yaml", "# Nobody reads it.\n", set()),
    ],
)
def test_words_are_found_in_their_lines(
    tmp_path: Path, name: str, text: str, found: set[tuple[int, str]]
) -> None:
    done = check(tmp_path, name, text)
    parts = [line.split(":", 4) for line in done.stdout.splitlines()]
    assert {(int(line), message.split("`")[1]) for _, line, _, _, message in parts} == found
    assert done.returncode == (1 if found else 0), done.stderr


def test_what_to_write_instead_is_said(tmp_path: Path) -> None:
    done = check(tmp_path, "docs/page.md", "It starts anew.\n")
    assert done.stdout == "docs/page.md:1:11:ElasticPyTorch.Words:`anew`: write again\n"


def test_long_sentences_are_warnings(tmp_path: Path) -> None:
    text = " ".join(["word"] * 35) + ". One " + " ".join(["word"] * 35) + ".\n"
    assert check(tmp_path / "silent", "docs/page.md", text).stdout == ""
    told = check(tmp_path / "asked", "docs/page.md", text, "--minAlertLevel=warning")
    assert (told.returncode, told.stdout.count("more than 35 words")) == (0, 1)
