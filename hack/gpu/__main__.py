"""Measures in eight minutes what a change of the group costs on one CUDA card of all ranks.

Ranks of NCCL count as ranks of several hosts, and talk over sockets of the loopback interface
(tests/worker_image/one_gpu.py). The agents are real; the rounds are declared as soon as a change is
known, so that the figures leave out what a cluster needs to notice a loss. A pause is a member's:
from the begin of its last step in the old group to that of its first one in the new group.
docs/use/gpu.md says how to run it. Tiny, without a card:

    PYTHONPATH=$PWD:$PWD/hack:$PWD/worker_image .venv/bin/python -m gpu --device cpu
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

from gpu.budget import allot, run_within
from gpu.measurements import FIT, MEASUREMENTS, make
from gpu.table import Row, failed, from_lines, lay_out, to_line
from gpu.trainings import SET_UP_SECONDS, Options

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 450.0
SMALL, LARGE, TINY = "120M", "1B", "tiny"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--only",
        metavar="a,b",
        default=",".join(FIT),
        help=f"of {', '.join(MEASUREMENTS)} (default: %(default)s)",
    )
    parser.add_argument(
        "--measure",
        choices=MEASUREMENTS,
        help="make only this one, in this process, and print its rows as JSON",
    )
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if unknown := [name for name in options.only if name not in MEASUREMENTS]:
        parser.error(f"no such measurement: {', '.join(unknown)}")
    return options


def parameters_of(name: str, device: str) -> str:
    return TINY if device == "cpu" else LARGE if MEASUREMENTS[name].large else SMALL


def measured(name: str, options: argparse.Namespace, left: float) -> list[Row]:
    """The rows of a measurement in its own process; one more if it fails."""
    measurement = MEASUREMENTS[name]
    named = (measurement.title, parameters_of(name, options.device), measurement.how)
    seconds = allot(measurement.seconds, left)
    if not seconds:
        return [failed(*named, "no time was left for it")]
    command = [sys.executable, "-m", "gpu", "--measure", name, "--device", options.device]
    out, err, status = run_within(command, seconds, dict(os.environ))
    rows = from_lines(out)
    if status in (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM):
        rows.append(failed(*named, f"it took longer than {seconds:.0f} s"))
    elif status:
        rows.append(failed(*named, err.strip().rpartition("\n")[2]))
    return rows


def machine(device: str) -> str:
    import torch  # noqa: PLC0415 - takes a second, which measurements need not wait for

    words = [time.strftime("%d %B %Y, %H:%M UTC", time.gmtime())]
    commit = ROOT / "COMMIT"
    if commit.exists():
        words.append(f"commit {commit.read_text().strip()}")
    if device == "cuda":
        query = "--query-gpu=name,driver_version,memory.total"
        command = ["nvidia-smi", query, "--format=csv,noheader"]
        try:
            shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
            words.append(shown.stdout.strip())
        except (OSError, subprocess.SubprocessError):
            words.append(torch.cuda.get_device_name())
        words.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")  # type: ignore[no-untyped-call]
    words += [f"torch {torch.__version__}", f"Python {platform.python_version()}"]
    words.append(f"{os.cpu_count()} cores")
    return "; ".join(words)


def main(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + RUN_SECONDS
    rows: list[Row] = []
    for name in options.only:
        print(f"[{RUN_SECONDS - deadline + time.monotonic():4.0f} s] {name}", flush=True)
        rows += measured(name, options, deadline - time.monotonic())
    backend = "NCCL, all ranks on one card" if options.device == "cuda" else "gloo, on CPUs"
    set_up = f"besides what it really does, a set-up sleeps for {SET_UP_SECONDS:g} s"
    print(f"\n{machine(options.device)}\nbfloat16; {backend}; {set_up}\n")
    print(lay_out(rows), flush=True)
    return 1 if any(row.remark.startswith("FAILED") for row in rows) else 0


if __name__ == "__main__":
    chosen = parse_options()
    if not chosen.measure:
        sys.exit(main(chosen))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    told = Options(parameters_of(chosen.measure, chosen.device), chosen.device)
    for made in make(chosen.measure, told):
        print(to_line(made), flush=True)
