"""The replayed script's own checkpoints, which no signal tears."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from replay.run import read_lines

from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import WAIT_SECONDS, until

pytestmark = [pytest.mark.process, pytest.mark.torch]

SCRIPT = str(ROOT / "hack/replay/scripts/train.py")
OPTIONS = ["--how", "plain", "--size", "2", "--step-seconds", "0", "--checkpoint-every", "1"]


def test_checkpoint_is_that_of_the_last_step_of_all_ranks_although_sigterm_comes_to_one_within_a_save(tmp_path: Path) -> None:
    scripts = [ROOT / "tests/worker_image/scripts", *(ROOT / name for name in ("worker_image", "operator"))]
    events = tmp_path / "events.jsonl"
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"EVENTS": str(events), "WORKER": "a", "PYTHONPATH": os.pathsep.join(map(str, scripts))}
    command = [sys.executable, SCRIPT, *OPTIONS, "--folder", str(tmp_path)]
    processes = [subprocess.Popen(command, env=os.environ | group | {"RANK": rank}) for rank in "01"]
    try:
        until((tmp_path / "checkpoint.a").exists, "a save to be under way", pause_seconds=0.0)
        processes[0].terminate()
        assert [process.wait(WAIT_SECONDS) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    step, _, _ = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    steps, _, _ = read_lines(json.loads(line) for line in events.read_text().splitlines())
    assert step == steps[-1].number
