"""The examples with transformers and Accelerate under torchrun: another group goes on with them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytest.importorskip(
    "transformers", reason="transformers is not installed: `make venv` installs what the tests need"
)
pytestmark = [pytest.mark.process, pytest.mark.long]


def run(example: str, workers: int, folder: Path, *options: str) -> str:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={workers}",
        "--rdzv-id=test",
    ]
    command += [
        str(ROOT / "examples" / example / "train.py"),
        "--output-dir",
        str(folder),
        *options,
    ]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "worker_image"),
        "TORCHELASTIC_RUN_ID": "test",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_accelerate(tmp_path: Path) -> None:
    small = ("--samples", "600", "--batch-size", "60", "--epochs")
    first = run("accelerate", 2, tmp_path, *small, "2")
    assert re.findall(r"start at step (\d+)/20  workers (\d)", first) == [("0", "2")]
    assert [step for step, _ in re.findall(r"step (\d+)/20  loss ([\d.]+)", first)] == ["10", "20"]


def test_transformers(tmp_path: Path) -> None:
    text = tmp_path / "texts"
    text.mkdir()
    (text / "text").write_text("the quick brown fox jumps over the lazy dog. " * 200)
    small = ("--texts", str(text), "--context", "16", "--max-steps", "30")
    output = run("transformers", 2, tmp_path / "output", *small)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", output)]
    assert losses, output
    assert json.loads((tmp_path / "output" / "model" / "config.json").read_text())["n_layer"] == 2
