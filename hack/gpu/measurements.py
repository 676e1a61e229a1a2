"""The measurements: each yields its rows as soon as it has them, so that what an error follows is not lost."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpu.pauses import Pause
from gpu.table import Row
from gpu.trainings import (
    LIMIT_SECONDS,
    Options,
    Rounds,
    Stock,
    closing,
    group_of,
    kill_process,
    measure,
)

LOSSES = 4  # of the measurement that loses a process again and again
GROWN, KILLED, LOST = "grown by a new pod", "a process is killed", "a pod is lost"
TORCHRUN = "stock torchrun"


def _row(what: str, options: Options, how: str, pause: Pause, remark: str = "") -> Row:
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
    """Stock torchrun: a node joins, a process is killed, a node is lost."""
    job = Stock(folder, options)
    with closing(job):
        job.begin("w0", "w1")
        before = group_of(job, "w1")
        job.add("w2")
        yield _row(
            GROWN,
            options,
            TORCHRUN,
            measure(job, "w1", before, 3),
            "from 2 nodes to 3; they wait for its set-up",
        )
        before = group_of(job, "w1")
        kill_process(job, "w2")
        yield _row(
            KILLED, options, TORCHRUN, measure(job, "w1", before, 3), "all start again, three go on"
        )
        before = group_of(job, "w1")
        job.kill("w2")
        yield _row(LOST, options, TORCHRUN, measure(job, "w1", before, 2), "two go on")


def started_again(options: Options, folder: Path, how: str) -> Iterator[Row]:
    """A new pod, a killed process and a lost pod, where scripts set themselves up when their group exists."""
    job = Rounds(folder, options.arguments(how, folder))
    with closing(job):
        job.begin("w0", "w1")
        job.add("w2")
        job.ready("w2")
        yield _row(GROWN, options, how, job.change("w0", "w1", "w2"), "from 2 pods to 3")
        kill_process(job, "w2")
        job.operator.wait_for("failed", "w2", seconds=LIMIT_SECONDS)
        yield _row(KILLED, options, how, job.change("w0", "w1", "w2", orderly=False), "three go on")
        job.kill("w2")
        yield _row(LOST, options, how, job.change("w0", "w1", orderly=False), "two go on")


def prepared(options: Options, folder: Path) -> Iterator[Row]:
    """A new pod, a lost pod with a spare and a killed process, where scripts set themselves up before (`spec.prepare`)."""
    how = "in_process, prepare"
    job = Rounds(
        folder, options.arguments("in_process", folder), ELASTIC_PYTORCH_PREPARE_SECONDS=300
    )
    with closing(job):
        job.begin("w0", "w1")
        job.add("w2")
        job.ready("w2")
        yield _row(GROWN, options, how, job.change("w0", "w1", "w2"), "from 2 pods to 3")
        job.add("w3")
        job.ready("w3")
        job.kill("w2")
        yield _row(
            LOST,
            options,
            how,
            job.change("w0", "w1", "w3", orderly=False),
            "a spare takes its place: three go on",
        )
        kill_process(job, "w3")
        job.operator.wait_for("failed", "w3", seconds=LIMIT_SECONDS)
        yield _row(
            KILLED,
            options,
            how,
            job.change("w0", "w1", orderly=False),
            "two go on, it prepares again",
        )
        job.ready("w3")
        yield _row("it comes back", options, how, job.change("w0", "w1", "w3"), "from 2 pods to 3")


def repaired(options: Options, folder: Path) -> Iterator[Row]:
    """Loses a process again and again: the others should leave the group in their processes (docs/use/gpu.md)."""
    job = Rounds(folder, options.arguments("in_process", folder))
    with closing(job):
        job.begin("w0", "w1", "w2")
        for loss in range(1, LOSSES + 1):
            before = [group_of(job, worker) for worker in ("w0", "w1")]
            kill_process(job, "w2")
            job.operator.wait_for("failed", "w2", seconds=LIMIT_SECONDS)
            job.operator.declare("w0", "w1")
            for worker, group in zip(("w0", "w1"), before, strict=True):
                yield _row(
                    KILLED,
                    options,
                    "in_process",
                    measure(job, worker, group, 2),
                    f"loss {loss}: {worker}",
                )
            if loss < LOSSES:
                job.ready("w2")
                job.change("w0", "w1", "w2")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement, which a process of its own makes."""

    title: str
    how: str
    large: bool
    seconds: float
    rows: Callable[[Options, Path], Iterator[Row]]


# Each with what it took on one H100 and 16 cores, or more. What matters most is first: the last
# ones are left out when time is over.
MEASUREMENTS = {
    "prepared": Measurement("growth and losses", "in_process, prepare", False, 110, prepared),
    "in_process": Measurement(
        "growth and losses", "in_process", False, 75, partial(started_again, how="in_process")
    ),
    "stock": Measurement("growth and losses", TORCHRUN, False, 120, stock),
    "repaired": Measurement(f"{KILLED}, again and again", "in_process", False, 110, repaired),
    "plain": Measurement(
        "growth and losses", "plain", False, 100, partial(started_again, how="plain")
    ),
    "prepared-1B": Measurement("growth and losses", "in_process, prepare", True, 250, prepared),
}
FIT = tuple(MEASUREMENTS)[:4]  # into one run of RUN_SECONDS


def make(name: str, options: Options) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from MEASUREMENTS[name].rows(options, Path(folder))
