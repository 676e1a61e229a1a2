"""The measurements: each yields its rows at once, so that an error does not lose them."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpu.pauses import Pause
from gpu.table import Row
from gpu.trainings import (
    Options,
    Rounds,
    Stock,
    closing,
    group_of,
    kill_process,
    measure,
)

LOSSES = 4
GROWN, KILLED, LOST = "grown by a new pod", "a process is killed", "a pod is lost"
TORCHRUN = "stock torchrun"


def _row(what: str, options: Options, how: str, pause: Pause, remark: str) -> Row:
    kept = "kept" if pause.kept else "started again"
    return Row(
        what,
        options.parameters,
        how,
        f"{pause.seconds:.2f}",
        f"{pause.step_seconds:.2f}",
        str(pause.again),
        kept,
        remark,
    )


def stock(options: Options, folder: Path) -> Iterator[Row]:
    job = Stock(folder, options)
    with closing(job):
        job.begin("w0", "w1")
        before = group_of(job, "w1")
        job.add("w2")
        pause = measure(job, "w1", before, 3)
        yield _row(GROWN, options, TORCHRUN, pause, "from 2 nodes to 3; they wait for its set-up")
        before = group_of(job, "w1")
        kill_process(job, "w2")
        pause = measure(job, "w1", before, 3)
        yield _row(KILLED, options, TORCHRUN, pause, "all start again, three go on")
        before = group_of(job, "w1")
        job.kill("w2")
        yield _row(LOST, options, TORCHRUN, measure(job, "w1", before, 2), "two go on")


def started_again(options: Options, folder: Path, how: str) -> Iterator[Row]:
    """A new pod, a killed process, a lost pod: scripts set themselves up in their group."""
    job = Rounds(folder, options.arguments(how, folder))
    with closing(job):
        job.begin("w0", "w1")
        job.add("w2")
        job.ready("w2")
        yield _row(GROWN, options, how, job.change("w0", "w1", "w2"), "from 2 pods to 3")
        job.lose_process("w2")
        yield _row(KILLED, options, how, job.change("w0", "w1", "w2", orderly=False), "three go on")
        job.kill("w2")
        yield _row(LOST, options, how, job.change("w0", "w1", orderly=False), "two go on")


def prepared(options: Options, folder: Path) -> Iterator[Row]:
    how = "in_process, prepare"
    arguments = options.arguments("in_process", folder)
    job = Rounds(folder, arguments, ELASTIC_PYTORCH_PREPARE_SECONDS=300)
    with closing(job):
        job.begin("w0", "w1")
        job.add("w2")
        job.ready("w2")
        yield _row(GROWN, options, how, job.change("w0", "w1", "w2"), "from 2 pods to 3")
        job.add("w3")
        job.ready("w3")
        job.kill("w2")
        pause = job.change("w0", "w1", "w3", orderly=False)
        yield _row(LOST, options, how, pause, "a spare takes its place: three go on")
        job.lose_process("w3")
        pause = job.change("w0", "w1", orderly=False)
        yield _row(KILLED, options, how, pause, "two go on, it prepares again")
        job.ready("w3")
        yield _row("it comes back", options, how, job.change("w0", "w1", "w3"), "from 2 pods to 3")


def repaired(options: Options, folder: Path) -> Iterator[Row]:
    """Loses a process repeatedly: the others should stay in their processes (docs/use/gpu.md)."""
    job = Rounds(folder, options.arguments("in_process", folder))
    with closing(job):
        job.begin("w0", "w1", "w2")
        for loss in range(1, LOSSES + 1):
            before = [group_of(job, worker) for worker in ("w0", "w1")]
            job.lose_process("w2")
            job.operator.declare("w0", "w1")
            for worker, group in zip(("w0", "w1"), before, strict=True):
                pause = measure(job, worker, group, 2)
                yield _row(KILLED, options, "in_process", pause, f"loss {loss}: {worker}")
            if loss < LOSSES:
                job.ready("w2")
                job.change("w0", "w1", "w2")


@dataclass(frozen=True, slots=True)
class Measurement:
    title: str
    how: str
    large: bool
    seconds: float
    rows: Callable[[Options, Path], Iterator[Row]]


# With the seconds that each took on an H100 with 16 cores, at most. The most important come first:
# the last ones are left out when time is over.
CHANGES = "growth and losses"
MEASUREMENTS = {
    "prepared": Measurement(CHANGES, "in_process, prepare", False, 110, prepared),
    "in_process": Measurement(
        CHANGES, "in_process", False, 75, partial(started_again, how="in_process")
    ),
    "stock": Measurement(CHANGES, TORCHRUN, False, 120, stock),
    "repaired": Measurement(f"{KILLED}, again and again", "in_process", False, 110, repaired),
    "plain": Measurement(CHANGES, "plain", False, 100, partial(started_again, how="plain")),
    "prepared-1B": Measurement(CHANGES, "in_process, prepare", True, 250, prepared),
}
FIT = tuple(MEASUREMENTS)[:4]  # into one run of RUN_SECONDS


def make(name: str, options: Options) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from MEASUREMENTS[name].rows(options, Path(folder))
