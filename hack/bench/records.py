"""What the logs of workers and operator say happened when. Pure: lines in, records out.

Every line carries the time of day of its node. On kind all nodes have this machine's clock, so the times compare with each
other, and with the moment of a fault.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime

STEP = re.compile(r"STEP (\d+) world=(\d+) time=([\d.]+)")
INIT = re.compile(r"INIT rank=(\d+) world=(\d+) restart=-?\d+ time=([\d.]+)")
AGENT = re.compile(r"elastic_pytorch\.agent (\S+Z) [A-Z]+ (.*)")
TAKEN = re.compile(r"round (\d+): rank (\d+) of (\d+),")
STARTED = re.compile(r"workers started in \d+ ms: pids ([\d ]+)")
TAKEN_ALONG = re.compile(r"workers taken along in \d+ ms: pids ([\d ]+)")


@dataclass(frozen=True, slots=True)
class Step:
    """Rank 0 has taken a step."""

    at: float
    pod: str
    number: int
    world: int


@dataclass(frozen=True, slots=True)
class Init:
    """A worker process has joined its group."""

    at: float
    pod: str
    rank: int
    world: int


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


Record = Step | Init | Taken | Started | Declared | PodCreated


def read_worker_line(pod: str, line: str) -> Record | None:
    """Read a line of a worker's log; None if it is about something else."""
    if found := STEP.match(line):
        return Step(float(found[3]), pod, number=int(found[1]), world=int(found[2]))
    if found := INIT.match(line):
        return Init(float(found[3]), pod, rank=int(found[1]), world=int(found[2]))
    if not (agent := AGENT.match(line)):
        return None
    at, text = datetime.fromisoformat(agent[1]).timestamp(), agent[2]
    if found := TAKEN.match(text):
        return Taken(at, pod, round=int(found[1]), rank=int(found[2]), world=int(found[3]))
    if found := STARTED.match(text) or TAKEN_ALONG.match(text):
        return Started(at, pod, tuple(int(pid) for pid in found[1].split()))
    return None


def read_operator_line(job: str, line: str) -> Record | None:
    """Read a line of the operator's log; None if it is about something else, or another job than `namespace/name`."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("job") != job:
        return None
    at = datetime.fromisoformat(entry["time"]).timestamp()
    match entry.get("message"):
        case "declared a round":
            return Declared(at, entry["round"], tuple(entry["members"]), entry.get("reason", ""), entry.get("cause", ""))
        case "created pod":
            return PodCreated(at, entry["pod"])
    return None
