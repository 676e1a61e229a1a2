"""The script's own checkpoints, which no signal tears."""

import signal
from pathlib import Path

import pytest
import torch
from measure.recorded_job import Told, steps_of

from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.warm_python import script_code, start_python

pytestmark = [pytest.mark.process, pytest.mark.torch]

SCRIPT = ROOT / "hack/kubeflow/scripts/train.py"
EVENTS = ROOT / "tests/worker_image/scripts"  # the folder of the module that the script imports
OPTIONS = ["--how", "plain", "--size", "2", "--step-seconds", "0", "--checkpoint-every", "1"]


def test_checkpoint_is_of_the_last_step_although_sigterm_comes_to_one_rank_within_a_save(
    tmp_path: Path,
) -> None:
    events = tmp_path / "events.jsonl"
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"EVENTS": str(events), "WORKER": "a"}
    code = (
        f"import sys; sys.path.append({str(EVENTS)!r}); "
        f"{script_code(SCRIPT, *OPTIONS, '--folder', str(tmp_path))}"
    )
    processes = [
        start_python(code, tmp_path / f"out-{rank}", tmp_path / f"err-{rank}", RANK=rank, **group)
        for rank in "01"
    ]
    try:
        until((tmp_path / "checkpoint.a").exists, "a save to be under way", pause_seconds=0.0)
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(WAIT_SECONDS) == 0
        # torchrun starts it again, as an exit code of 0 would end the training.
        assert processes[1].wait(WAIT_SECONDS) == 1
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
    step, _, _ = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert step == steps_of(Told(events).new())[-1].number
