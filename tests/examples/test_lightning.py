"""The Lightning example: its script under torchrun, and the difference that its README shows."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.test_char_lm import under_torchrun
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "lightning"
STEP = re.compile(r"^step (\d+)/\d+  loss ([\d.]+)  workers (\d+)", re.MULTILINE)


def train(folder: Path, *, workers: int, steps: int) -> str:
    options = ["--checkpoint-dir", str(folder), "--steps", str(steps)]
    return under_torchrun(EXAMPLE / "train.py", *options, workers=workers, cwd=folder)


@pytest.mark.process
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning: pip install lightning")
@pytest.mark.long
def test_trains_under_torchrun(tmp_path: Path) -> None:
    output = train(tmp_path, workers=2, steps=4)
    assert [(step, workers) for step, _, workers in STEP.findall(output)] == [
        (str(step), "2") for step in range(1, 5)
    ]
    assert "done at step 4/4" in output
    assert list(tmp_path.glob("*/*s000000004*")), "the last step is on disk"


def test_readme_shows_what_makes_it_elastic() -> None:
    before, after = (
        (EXAMPLE / name).read_text().splitlines() for name in ("train_stock.py", "train.py")
    )
    [shown] = re.findall(r"```diff\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    removed = [line[1:] for line in shown.splitlines() if line.startswith("-")]
    added = [line[1:] for line in shown.splitlines() if line.startswith("+")]
    assert [line for line in before if line not in removed] == [
        line for line in after if line not in added
    ]
    assert set(removed) <= set(before)
    assert set(added) <= set(after)
