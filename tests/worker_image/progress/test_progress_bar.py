import io
import os
import pty
import re
import subprocess
import sys

import pytest
from elastic_pytorch.progress.progress_bar import ProgressBar, bar_line

from tests.paths import ROOT

WORKER_IMAGE = ROOT / "worker_image"


@pytest.mark.parametrize(
    ("facts", "columns", "line"),
    [
        ((5, 10, 1.25, 2.0), 60, "[=========         ]  5/10  loss 1.25  2 steps/s  0:02 left"[:59]),
        ((5, None, 1.25, 2.0), 60, "step 5  loss 1.25  2 steps/s"),
        ((0, 10, None, None), 60, "[" + " " * 40 + "]  0/10"),
        ((12, 10, None, 0.5), 60, "[" + "=" * 36 + "]  12/10  0.5 steps/s"),
        ((5, 100_000, None, 0.5), 40, "5/100000  0.5 steps/s  55:33:10 left"[:39]),
        ((5, 10, 1.25, 2.0), 10, "5/10  los"),
    ],
)
def test_line_fits_the_terminal(facts: tuple[float, float | None, float | None, float | None], columns: int, line: str) -> None:
    step, total, loss, pace = facts
    drawn = bar_line(step=step, total=total, loss=loss, steps_per_second=pace, columns=columns)
    assert len(drawn) < columns
    assert re.sub(r"[= ]+", " ", drawn) == re.sub(r"[= ]+", " ", line)


def test_draws_ten_times_a_second_at_most_and_the_last_step_always() -> None:
    terminal, now = io.StringIO(), [100.0]
    bar = ProgressBar(terminal, clock=lambda: now[0], columns=lambda: 60)
    for step in range(1, 101):
        bar.show(step, 100, None)
        now[0] += 0.01
    lines = terminal.getvalue().split("\r\x1b[K")[1:]
    assert 10 <= len(lines) <= 12
    assert "100/100" in lines[-1]
    assert lines[-1].endswith("\n")
    assert [line.endswith("\n") for line in lines[:-1]] == [False] * (len(lines) - 1)
    assert "100 steps/s" in lines[-2]
    bar.close()
    assert terminal.getvalue().count("\n") == 1


def run(code: str, *, rank: int) -> tuple[str, str]:
    """What a process writes to a terminal that is its stderr, and to its stdout."""
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "ELASTIC_PYTORCH_REPORT_SOCKET"}
    process = subprocess.run(
        [sys.executable, "-c", code],
        stderr=terminal,
        stdout=subprocess.PIPE,
        env=environment | {"RANK": str(rank), "PYTHONPATH": str(WORKER_IMAGE), "COLUMNS": "60"},
        timeout=60,
        check=False,
    )
    os.write(terminal, b"<end>")
    os.close(terminal)
    shown = b""
    while not shown.endswith(b"<end>"):
        shown += os.read(controller, 4096)
    os.close(controller)
    assert process.returncode == 0, shown
    return shown.removesuffix(b"<end>").decode(), process.stdout.decode()


def test_report_draws_on_the_terminal_of_rank_0() -> None:
    code = "import elastic_pytorch as e; e.report(step=3, total=10, loss=0.5); print('torch' in __import__('sys').modules)"
    shown, printed = run(code, rank=0)
    assert "3/10  loss 0.5" in shown
    assert shown.endswith("\r\n"), "what the shell writes next begins a new line"
    assert printed == "False\n"
    assert run(code, rank=1)[0] == ""


def test_report_is_quiet_without_a_terminal() -> None:
    code = "import elastic_pytorch as e; e.report(step=3, total=10); e.report(step='x')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(WORKER_IMAGE), "RANK": "0"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
