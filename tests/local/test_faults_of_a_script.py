"""A bare script that knows nothing of this project goes through the faults in real processes."""

from pathlib import Path

import pytest

from tests.local.local_jobs import run_local

pytestmark = [pytest.mark.process, pytest.mark.torch]

HURRIED = """
import sys
from elastic_pytorch_local import cli
from elastic_pytorch_local.faults import acts
acts.SETTLE_SECONDS = 0.2
sys.exit(cli.main(sys.argv[1:]))
"""
SCRIPT = """
import os, sys, time
assert sys.argv[1:] == ["--lr", "0.1"]
for step in range(1, 1_000_000):
    time.sleep(0.05)
    if os.environ["RANK"] == "0":
        print(f"iter {step}: loss {1 / step:.4f}", flush=True)
"""


def test_table_says_what_each_fault_has_cost_and_the_exit_code_that_steps_were_repeated_on_purpose(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ("--workers", "2", "--faults", "--page", "--", "--lr", "0.1")
    done = run_local(tmp_path, "train.py", *options, program=("-c", HURRIED))
    told = done.stdout[-4000:] + done.stderr[-4000:]
    assert done.returncode == 3, told  # it begins again each time
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "EVENT WORKERS STOOD STILL STEPS REPEATED READY AFTER"
    workers = [(line[:24].strip(), line[24:34].strip()) for line in lines[1:]]
    assert [workers[0], *workers[-3:-1]] == [
        ("a rank is killed", "2 -> 2"),
        ("it grows", "2 -> 3"),
        ("it shrinks", "3 -> 2"),
    ], told
    assert ("its replacement joins", "1 -> 2") in workers
    assert "repeated on purpose" in lines[-1]
    assert "the page of the job: http://127.0.0.1:" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("stopping train")
