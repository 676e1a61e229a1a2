"""How long measurements may take, and what is left of one whose time is over."""

import os
import sys

import pytest
from gpu.__main__ import RUN_SECONDS, measured, parse_options
from gpu.budget import allot, carriers, run_within
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


@pytest.mark.parametrize("parent_stays", [True, False])
def test_all_that_a_program_has_started_ends_with_it(parent_stays: bool) -> None:
    child = "import os, time; os.setsid(); print(os.environ['MEASUREMENT'], flush=True); time.sleep(600)"
    program = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}])"
        + "; time.sleep(600)" * parent_stays
    )
    out, _, status = run_within([sys.executable, "-c", program], 3, dict(os.environ))
    assert status == (-15 if parent_stays else 0)
    assert not [
        pid for mark in out.splitlines() for pid in carriers(f"MEASUREMENT={mark}")
    ]  # none if the machine was too slow for a child


def test_descendants_have_whole_generations() -> None:
    assert os.getpid() in descendants(os.getppid())


def test_measurement_without_time_has_a_row() -> None:
    [row] = measured("plain-1B", parse_options([]), 10.0)
    assert (row.what, row.parameters, row.how) == ("grown by a new pod", "1B", "plain")
    assert row.remark == "FAILED: no time was left for it"
