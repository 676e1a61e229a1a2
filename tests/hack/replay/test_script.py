"""The script trains in each of its ways, and the plain one goes on from its checkpoint."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from replay.run import Step, read_lines

from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import WAIT_SECONDS, until

pytestmark = [pytest.mark.process, pytest.mark.torch]


SCRIPT = str(ROOT / "hack/replay/scripts/train.py")


def environment_of(folder: Path) -> dict[str, str]:
    scripts = [ROOT / "tests/worker_image/scripts", *(ROOT / name for name in ("worker_image", "operator"))]
    return os.environ | {
        "EVENTS": str(folder / "events.jsonl"),
        "WORKER": "a",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, scripts)),
    }


def train(folder: Path, how: str, steps: int) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--how", how, "--folder", str(folder), "--size", "2", "--step-seconds", "0.01", "--checkpoint-every", "2"]
    command += [SCRIPT, *options, "--steps", str(steps)]
    done = subprocess.run(command, env=environment_of(folder), capture_output=True, text=True, check=False)
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


def test_checkpoint_is_that_of_the_last_step_of_all_ranks_although_sigterm_comes_to_one_within_a_save(tmp_path: Path) -> None:
    options = ["--how", "plain", "--folder", str(tmp_path), "--size", "2", "--step-seconds", "0", "--checkpoint-every", "1"]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [environment_of(tmp_path) | group | {"RANK": rank} for rank in "01"]
    processes = [subprocess.Popen([sys.executable, SCRIPT, *options], env=environment) for environment in ranks]
    try:
        until((tmp_path / "checkpoint.a").exists, "a save to be under way", pause_seconds=0.0)
        processes[0].terminate()
        assert [process.wait(WAIT_SECONDS) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    step, _, _ = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert step == told(tmp_path)[0][-1].number
