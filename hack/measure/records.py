"""What the logs of workers and operator say happened when. Pure: lines in, records out.

The times are those of the nodes' clocks. On kind these are this machine's, so they compare with each other, and with the
moment of a fault.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime

# Of examples/all-reduce, which tells the time itself
STEP = re.compile(r"STEP (\d+) world=(\d+) time=([\d.]+)")
INIT = re.compile(r"INIT rank=(\d+) world=(\d+) restart=-?\d+ time=([\d.]+)")
# Of examples/char-lm: the time is that at which the line was logged
LM_START = re.compile(r"\bstart at step \d+/\d+  workers (\d+)")
LM_STEP = re.compile(r"\bstep (\d+)/(\d+)  loss ([\d.]+|nan|inf)  workers (\d+)")
LM_DONE = re.compile(r"\bdone at step (\d+)/\d+  validation loss ([\d.]+|nan|inf)")
AGENT = re.compile(r"elastic_pytorch\.agent (\S+Z) [A-Z]+ (.*)")
TAKEN = re.compile(r"round (\d+): rank (\d+) of (\d+),")
STARTED = re.compile(r"workers (?:started|taken along) in \d+ ms: pids ([\d ]+)")


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


def read_worker_line(pod: str, line: str) -> Record | None:
    """Returns what a line of a worker's log says, which begins with its RFC 3339 time; None if it is about something else."""
    stamp, _, text = line.partition(" ")
    if found := STEP.match(text):
        return Step(float(found[3]), pod, number=int(found[1]), world=int(found[2]))
    if found := INIT.match(text):
        return Init(float(found[3]), pod, rank=int(found[1]), world=int(found[2]))
    if found := AGENT.match(text):
        return _read_agent(seconds_of(found[1]), pod, found[2])
    if not stamp[:1].isdigit():
        return None
    if found := LM_START.search(text):
        return Init(seconds_of(stamp), pod, rank=0, world=int(found[1]))
    if found := LM_DONE.search(text):
        return Done(seconds_of(stamp), pod, step=int(found[1]), validation_loss=float(found[2]))
    if found := LM_STEP.search(text):
        return Step(seconds_of(stamp), pod, int(found[1]), world=int(found[4]), total=int(found[2]), loss=float(found[3]))
    return None


def _read_agent(at: float, pod: str, text: str) -> Record | None:
    if found := TAKEN.match(text):
        return Taken(at, pod, round=int(found[1]), rank=int(found[2]), world=int(found[3]))
    if found := STARTED.match(text):
        return Started(at, pod, tuple(int(pid) for pid in found[1].split()))
    return None


def read_operator_line(job: str, line: str) -> Record | None:
    """Returns what a line of the operator's log says about the job `namespace/name`; None if it is about something else."""
    try:
        entry = json.loads(line.partition(" ")[2])
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("job") != job:
        return None
    at = seconds_of(entry["time"])
    match entry.get("message"):
        case "declared a round":
            return Declared(at, entry["round"], tuple(entry["members"]), entry.get("reason", ""), entry.get("cause", ""))
        case "created pod":
            return PodCreated(at, entry["pod"])
    return None


def seconds_of(time: str) -> float:
    """Returns the seconds since 1970 of an RFC 3339 time."""
    return datetime.fromisoformat(time).timestamp()
