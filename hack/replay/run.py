"""What a job did while a trace was replayed to it, as its processes told it. Pure, but for the file that keeps it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elastic_pytorch_local.faults.steps import Step
from measure.recorded_job import steps_of


class Joined(NamedTuple):
    """A worker has joined a group."""

    at: float
    worker: str


class SetUp(NamedTuple):
    """A script has done its set-up."""

    began: float
    ended: float
    worker: str


@dataclass(frozen=True, slots=True)
class Run:
    """A trace that was replayed to a job.

    Attributes:
        factor: how much faster than in reality it was.
        began: when the trace began, seconds since the epoch.
        ended: when its time was over.
        steps: in the order of their times; also those before it began.
        joined: groups that workers have joined.
        events: when each of the trace was made.
        error: why it was broken off; empty: it was not.
    """

    trace: str
    job: str
    seed: int
    factor: float
    commit: str
    began: float
    ended: float
    steps: Sequence[Step]
    joined: Sequence[Joined]
    set_ups: Sequence[SetUp]
    events: Sequence[float]
    error: str = ""


def read_lines(lines: Sequence[Mapping[str, Any]]) -> tuple[list[Step], list[Joined], list[SetUp]]:
    """What the processes of a job have told."""
    ordered = sorted(lines, key=lambda line: float(line["at"]))
    joined = [Joined(line["at"], line["worker"]) for line in ordered if line["what"] == "began"]
    set_ups = [SetUp(line["began"], line["at"], line["worker"]) for line in ordered if line["what"] == "set-up"]
    return steps_of(ordered), joined, set_ups


def members(lines: Sequence[Mapping[str, Any]], since: float) -> dict[str, int]:
    """The workers that have taken a step since a moment, each with the size of its group."""
    return {line["worker"]: line["WORLD_SIZE"] for line in lines if line["what"] == "step" and line["at"] >= since}


def write(folder: Path, run: Run) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run.trace}-{run.job}.json"
    path.write_text(json.dumps(asdict(run)) + "\n")
    return path


def read_all(folder: Path) -> list[Run]:
    return [_read(json.loads(path.read_text())) for path in sorted(folder.glob("*-*.json"))]


def _read(entry: dict[str, Any]) -> Run:
    kinds: dict[str, Any] = {"joined": Joined, "set_ups": SetUp}
    lists = {name: [kind(*values) for values in entry[name]] for name, kind in kinds.items()}
    return Run(**entry | lists | {"steps": [Step(**step) for step in entry["steps"]]})
