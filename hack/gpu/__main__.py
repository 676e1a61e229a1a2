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
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from gpu.measurements import FIT, MEASUREMENTS
from gpu.table import Row, failed, lay_out
from gpu.trainings import SET_UP_SECONDS, Options

COMMIT = Path(__file__).resolve().parents[1] / "COMMIT"  # of the pack
RUN_SECONDS = 450.0
LEAST_SECONDS = 15.0  # with less time left, a measurement does not begin
END_SECONDS = 5.0  # for a measurement to end its processes after its time
CHANGES = "growth and losses"
SMALL, LARGE, TINY = "120M", "1B", "tiny"


def parse_options() -> argparse.Namespace:
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
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := [name for name in options.only if name not in MEASUREMENTS]:
        parser.error(f"no such measurement: {', '.join(unknown)}")
    return options


def allot(wanted: float, left: float) -> float:
    """The seconds of a measurement that wants some, of those left to the run; 0: too few."""
    may = min(wanted, left - END_SECONDS)
    return may if may >= LEAST_SECONDS else 0.0


def measured(name: str, device: str, left: float) -> Iterator[Row]:
    """Yields the rows of a measurement at once, and one more if it fails."""
    measurement = MEASUREMENTS[name]
    parameters = TINY if device == "cpu" else LARGE if measurement.large else SMALL
    seconds = allot(measurement.seconds, left)
    if not seconds:
        yield failed(CHANGES, parameters, measurement.how, "no time was left for it")
        return

    def give_up(*_: object) -> NoReturn:
        raise TimeoutError(f"it took longer than {seconds:.0f} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield from measurement.rows(Options(parameters, device), Path(folder))
    except Exception as error:
        yield failed(CHANGES, parameters, measurement.how, f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def machine(device: str) -> str:
    import torch  # noqa: PLC0415 - takes a second, and a pack is tested without it

    words = [time.strftime("%d %B %Y, %H:%M UTC", time.gmtime())]
    if COMMIT.exists():
        words.append(f"commit {COMMIT.read_text().strip()}")
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
        rows += measured(name, options.device, deadline - time.monotonic())
    backend = "NCCL, all ranks on one card" if options.device == "cuda" else "gloo, on CPUs"
    set_up = f"besides what it really does, a set-up sleeps for {SET_UP_SECONDS:g} s"
    print(f"\n{machine(options.device)}\nbfloat16; {backend}; {set_up}\n")
    print(lay_out(rows), flush=True)
    return 1 if any(row.remark.startswith("FAILED") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(parse_options()))
