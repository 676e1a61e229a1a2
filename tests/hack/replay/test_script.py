"""The script trains in each of its ways, and goes on where it had stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from replay.run import read_lines

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


@pytest.mark.parametrize("how", ["plain", "library", "sharded"])
def test_script_goes_on_where_it_had_stopped(tmp_path: Path, how: str) -> None:
    train(tmp_path, how, 4)
    train(tmp_path, how, 6)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    steps, joined, set_ups = read_lines(lines)
    assert [(step.number, step.world, step.group) for step in steps] == [
        *((number, 2, 1) for number in (1, 2, 3, 4)),
        *((number, 2, 2) for number in (5, 6)),
    ]
    assert len(joined) == len(set_ups) == 4
