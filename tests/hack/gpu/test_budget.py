"""How long measurements may take, and what is left of one whose time is over."""

import os
import sys
from pathlib import Path

import pytest
from gpu.__main__ import RUN_SECONDS, measured, parse_options
from gpu.budget import allot, run_within
from gpu.measurements import FIT, MEASUREMENTS

from tests.worker_image.agents import descendants

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("wanted", "left", "seconds"),
    [(60, 400, 60), (60, 45, 40), (60, 20, 15), (60, 19, 0), (60, -3, 0)],
)
def test_shares(wanted: float, left: float, seconds: float) -> None:
    assert allot(wanted, left) == seconds


def test_whole_run_ends_within_eight_minutes() -> None:
    assert RUN_SECONDS <= 450  # the rest is for the environment, and the end of the last measurement
    assert sum(MEASUREMENTS[name].seconds for name in FIT) <= RUN_SECONDS


def test_program_in_time_is_heard_out() -> None:
    assert run_within([sys.executable, "-c", "print(1)"], 60, dict(os.environ)) == ("1\n", "", 0)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_all_that_a_program_has_started_ends_with_it() -> None:
    child = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    program = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    out, _, status = run_within([sys.executable, "-c", program], 3, dict(os.environ))
    assert status == -15
    assert not [pid for pid in map(int, out.splitlines()) if lives(pid)]  # none if the machine was too busy to start it in time


def test_descendants_have_whole_generations() -> None:
    assert os.getpid() in descendants(os.getppid())


def test_measurement_without_time_has_a_row() -> None:
    [row] = measured("plain-1B", parse_options([]), 10.0)
    assert (row.what, row.parameters, row.how) == ("grown by a new pod", "1B", "plain")
    assert row.remark == "FAILED: no time was left for it"
