"""What the logs of workers and operator say happened when. Pure: lines in, records out.

The times are those of the nodes' clocks. On kind these are this machine's, so they compare with each other, and with the
moment of a fault.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from elastic_pytorch_local.faults.steps import seconds_of

from measure.recorded_job import objects_of


@dataclass(frozen=True, slots=True)
class Step:
    """Rank 0 has taken a step; char-lm also says how many there will be, and the loss."""

    at: float
    pod: str
    number: int
    world: int
    total: int = 0
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Init:
    """A worker process has joined its group; char-lm says so of rank 0 only."""

    at: float
    pod: str
    rank: int
    world: int


@dataclass(frozen=True, slots=True)
class Done:
    """The training has come to its end."""

    at: float
    pod: str
    step: int
    validation_loss: float


@dataclass(frozen=True, slots=True)
class Taken:
    """An agent has taken up a round."""

    at: float
    pod: str
    round: int
    rank: int
    world: int


@dataclass(frozen=True, slots=True)
class Started:
    """An agent has started its worker processes."""

    at: float
    pod: str
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """The operator has declared a round."""

    at: float
    round: int
    members: tuple[str, ...]
    reason: str
    cause: str


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The operator has made a worker pod."""

    at: float
    pod: str


Record = Step | Init | Done | Taken | Started | Declared | PodCreated


# How each record of a worker is found, and made of what was found, of the pod, and of the time at which the line was logged.
_LOSS = r"(\d+\.\d+|nan|inf)"
_AGENT = r"elastic_pytorch\.agent (\S{10,30}Z) [A-Z]+ "
_OF_WORKERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str, str], Record]], ...] = (
    # Of examples/all-reduce, which tells the time itself
    (
        re.compile(r"STEP (\d+) world=(\d+) time=(\d+\.\d{3})"),
        lambda found, pod, _: Step(float(found[3]), pod, number=int(found[1]), world=int(found[2])),
    ),
    (
        re.compile(r"INIT rank=(\d+) world=(\d+) restart=-?\d+ time=(\d+\.\d{3})"),
        lambda found, pod, _: Init(float(found[3]), pod, rank=int(found[1]), world=int(found[2])),
    ),
    # Of examples/char-lm
    (
        re.compile(r"start at step \d+/\d+  workers (\d+)"),
        lambda found, pod, stamp: Init(seconds_of(stamp), pod, rank=0, world=int(found[1])),
    ),
    (
        re.compile(rf"step (\d+)/(\d+)  loss {_LOSS}  workers (\d+)"),
        lambda found, pod, stamp: Step(
            seconds_of(stamp), pod, int(found[1]), world=int(found[4]), total=int(found[2]), loss=float(found[3])
        ),
    ),
    (
        re.compile(rf"done at step (\d+)/\d+  validation loss {_LOSS}"),
        lambda found, pod, stamp: Done(seconds_of(stamp), pod, step=int(found[1]), validation_loss=float(found[2])),
    ),
    # Of the agent, which tells the time itself
    (
        re.compile(rf"{_AGENT}round (\d+): rank (\d+) of (\d+),"),
        lambda found, pod, _: Taken(seconds_of(found[1]), pod, round=int(found[2]), rank=int(found[3]), world=int(found[4])),
    ),
    (
        re.compile(rf"{_AGENT}workers (?:started|taken along) in \d+ ms: pids (\d+(?: \d+)*)"),
        lambda found, pod, _: Started(seconds_of(found[1]), pod, tuple(int(pid) for pid in found[2].split())),
    ),
)


def read_worker_line(pod: str, line: str) -> list[Record]:
    """Returns what a line of a worker's log says, which begins with its RFC 3339 time.

    A process that is killed leaves its last line without an end, so that records may stand anywhere, and behind each other.
    """
    records, stamp = list[tuple[int, Record]](), line.partition(" ")[0]
    for pattern, make in _OF_WORKERS:
        for found in pattern.finditer(line):
            with suppress(ValueError):  # it only looks like a record, or the line has no time
                records.append((found.start(), make(found, pod, stamp)))
    return [record for _, record in sorted(records, key=lambda place: place[0])]


def read_operator_line(job: str, line: str) -> list[Record]:
    """Returns what a line of the operator's log says about the job `namespace/name`."""
    records = list[Record]()
    for entry in objects_of(line, "time"):
        with suppress(ValueError, KeyError, TypeError):
            match entry:
                case {"job": about, "message": "declared a round"} if about == job:
                    at, members = seconds_of(entry["time"]), tuple(entry["members"])
                    records.append(Declared(at, entry["round"], members, entry.get("reason", ""), entry.get("cause", "")))
                case {"job": about, "message": "created pod"} if about == job:
                    records.append(PodCreated(seconds_of(entry["time"]), entry["pod"]))
    return records
