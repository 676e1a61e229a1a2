"""The smallest example, as plain processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import WAIT_SECONDS

pytestmark = [pytest.mark.process, pytest.mark.torch]

SCRIPT = str(ROOT / "examples" / "all-reduce" / "train.py")


def test_step_that_is_saved_when_one_rank_is_told_to_end_is_the_last_of_all_ranks(tmp_path: Path) -> None:
    options = [
        "--save-on-sigterm",
        "--step-seconds",
        "0.01",
        "--checkpoint-every",
        "1000000",
        "--checkpoint-dir",
        str(tmp_path),
    ]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "run"}
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, *options], env=os.environ | group | {"RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    try:
        assert ranks[0].stdout is not None
        while "STEP 3 " not in ranks[0].stdout.readline():
            assert ranks[0].poll() is None
        ranks[1].terminate()
        rest, _ = ranks[0].communicate(timeout=WAIT_SECONDS)
        assert [process.wait(WAIT_SECONDS) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert (tmp_path / "run.step").read_text() == re.findall(r"STEP (\d+) ", "STEP 3 \n" + rest)[-1]
