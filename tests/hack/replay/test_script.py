"""The script trains in each of its ways, and the plain one goes on from its checkpoint."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from replay.run import Step, read_lines

from tests.paths import ROOT

pytestmark = [pytest.mark.process, pytest.mark.torch]


def train(folder: Path, how: str, steps: int) -> None:
    scripts = [ROOT / "tests/worker_image/scripts", *(ROOT / name for name in ("worker_image", "operator"))]
    environment = os.environ | {
        "EVENTS": str(folder / "events.jsonl"),
        "WORKER": "a",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, scripts)),
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--how", how, "--folder", str(folder), "--size", "2", "--step-seconds", "0.01", "--checkpoint-every", "2"]
    script = str(ROOT / "hack/replay/scripts/train.py")
    done = subprocess.run(
        [*command, script, *options, "--steps", str(steps)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def told(folder: Path) -> tuple[list[Step], int]:
    """The steps of rank 0, and how many processes have joined a group after their set-up."""
    steps, joined, set_ups = read_lines(json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines())
    assert len(joined) == len(set_ups)
    return steps, len(joined)


@pytest.mark.parametrize("how", ["library", "sharded"])
def test_script_trains_with_the_library(tmp_path: Path, how: str) -> None:
    train(tmp_path, how, 4)
    steps, joined = told(tmp_path)
    assert [(step.number, step.world, step.group) for step in steps] == [(number, 2, 1) for number in (1, 2, 3, 4)]
    assert joined == 2


def test_plain_script_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    train(tmp_path, "plain", 3)
    train(tmp_path, "plain", 5)
    steps, joined = told(tmp_path)
    assert [(step.number, step.group) for step in steps] == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2)]
    assert joined == 4
