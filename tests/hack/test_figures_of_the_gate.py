"""What `make test` says about itself: the seconds of each test, and what has grown."""

import os
import subprocess
import sys
from pathlib import Path

import growth
import test_times

from tests.paths import ROOT
from tests.recorded_times import VARIABLE

TESTS = """
import subprocess, sys, time

BURN = "import time\\nwhile time.process_time() < 0.3: pass"

def test_waits():
    time.sleep(0.2)

def test_burns_in_a_child():
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_burns_in_a_child_that_lives_on():
    child = subprocess.Popen([sys.executable, "-c", BURN + "\\nprint(flush=True)\\ninput()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
"""


def test_a_run_records_wall_and_cpu_seconds_of_each_test_in_each_of_its_processes(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    record = tmp_path / "times" / "some.tsv"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
    ]
    command += ["-p", "tests.conftest", "--numprocesses", "2", str(tmp_path / "test_some.py")]
    environment = os.environ | {VARIABLE: str(record), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    costs = {
        name.partition("::")[2]: cost
        for name, cost in test_times.read_costs(record.read_text().splitlines()).items()
    }
    burn = {"test_burns_in_a_child", "test_burns_in_a_child_that_lives_on"}
    assert costs.keys() == {"test_waits", *burn}
    assert costs["test_waits"].wall_seconds >= 0.2
    assert all(costs[test].cpu_seconds >= 0.25 for test in burn)  # the kernel's count is not exact


def test_costs_are_summed_by_folder() -> None:
    lines = [
        "tests/a/b/c/d/test_x.py::test_1[\tweird]\t1.0\t0.5",
        "tests/a/b/test_y.py::test_2\t2.0\t1.5",
        "tests/test_z.py::test_3\t4.0\t3.0",
    ]
    folders = test_times.by_folder(test_times.read_costs(lines))
    assert folders == {
        "tests/a/b": test_times.Cost(3.0, 2.0, 2),
        "tests": test_times.Cost(4.0, 3.0, 1),
    }
    found = test_times.table("folder", folders).splitlines()[1].split()
    assert found == ["4.0", "3.0", "1", "tests"]


def test_growth_is_shown_beside_the_last_landed_figures() -> None:
    now = dict(growth.measure())
    assert now["product bytes"] > now["hack bytes"] > 0
    assert 0 < now["spec fields"] < 200
    table = growth.comparison(
        {"date": "2026-11-29", "spec fields": "80", "tests bytes": ""},
        {"spec fields": 82, "tests bytes": 5},
    )
    assert table.splitlines()[1].split() == ["spec", "fields", "82", "80", "+2", "(+2.5%)"]
    assert table.splitlines()[2].split() == ["tests", "bytes", "5", "0"]
