"""The smallest example, as plain processes."""

import re
import signal
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.warm_python import script_code, start_python

pytestmark = [pytest.mark.process, pytest.mark.torch]

SCRIPT = ROOT / "examples" / "all-reduce" / "train.py"


def test_step_that_is_saved_when_one_rank_is_told_to_end_is_the_last_of_all_ranks(
    tmp_path: Path,
) -> None:
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
    code, outputs = script_code(SCRIPT, *options), [tmp_path / f"out-{rank}" for rank in range(2)]
    ranks = [
        start_python(code, out, tmp_path / f"err-{rank}", RANK=str(rank), **group)
        for rank, out in enumerate(outputs)
    ]
    try:
        until(lambda: "STEP 3 " in outputs[0].read_text(), "a third step")
        ranks[1].send_signal(signal.SIGTERM)
        assert [process.wait(WAIT_SECONDS) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.send_signal(signal.SIGKILL)
    assert (tmp_path / "run.step").read_text() == re.findall(
        r"STEP (\d+) ", outputs[0].read_text()
    )[-1]
