"""The measurements: each yields its rows at once, so that an error does not lose them."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpu.pauses import Pause
from gpu.table import Row
from gpu.trainings import Options, Rounds, Stock, closing, group_of, measure

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
        job.events.kill("w2")
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


class Measurement(NamedTuple):
    how: str
    large: bool
    seconds: float
    rows: Callable[[Options, Path], Iterator[Row]]


# With the seconds that each took on an H100 with 16 cores, at most. The most important come first:
# the last ones are left out when time is over.
MEASUREMENTS = {
    "prepared": Measurement("in_process, prepare", False, 110, prepared),
    "in_process": Measurement("in_process", False, 75, partial(started_again, how="in_process")),
    "stock": Measurement(TORCHRUN, False, 120, stock),
    "plain": Measurement("plain", False, 100, partial(started_again, how="plain")),
    "prepared-1B": Measurement("in_process, prepare", True, 250, prepared),
}
FIT = tuple(MEASUREMENTS)[:4]  # into one run of RUN_SECONDS
