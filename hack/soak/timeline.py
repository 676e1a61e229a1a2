"""What was seen from outside, and the groups that took the steps of a training. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from elastic_pytorch_local.faults import steps

INDEX = re.compile(r"-worker-(\d+)(?:-|$)")


@dataclass(frozen=True, slots=True)
class Step(steps.Step):
    """A step, as one process records it before the gradients are exchanged."""

    rank: int = 0
    epoch: int = 0
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    at: float
    pod: str
    parameters: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SetUpFailure:
    """A worker's script failed on purpose before it had a group."""

    at: float
    pod: str
    how: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The end of a worker, or of an operator's container, which the kubelet starts again."""

    at: float
    job: str  # empty: none, of an operator
    pod: str
    node: str
    how: str

    @property
    def text(self) -> str:
        return f"{self.pod} on {self.node}: {self.how}"


@dataclass(frozen=True, slots=True)
class StatusSeen:
    at: float
    job: str
    state: str
    world: int
    total_failures: int = 0
    spares: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Usage:
    at: float
    process: str  # its node, process id and start, because ids are reused
    role: str  # agent or operator
    descriptors: int
    memory_files: int
    threads: int
    resident_mib: float


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    job: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint in the bucket, as its server notes it."""

    at: float  # of a read: when the server began to look for the newest one
    version: tuple[int, int] | None  # generation and step; None: no checkpoint could be read
    read: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """What the processes of one job record."""

    steps: Sequence[Step] = ()
    done: Sequence[Done] = ()
    failures: Sequence[SetUpFailure] = ()
    refusals: Sequence[Violation] = ()


def read_records(job: str, lines: Iterable[Mapping[str, Any]]) -> Records:
    """A job's records, of which each step has a numbered group.

    A group that can write nothing claims no generation, so that the next one may have the same.
    The restored ranks distinguish them: each comes once in a group. In scripts without
    generations, each process of rank 0 has a group of its own.
    """
    failures, refusals = list[SetUpFailure](), list[Violation]()
    done, told = list[Done](), list[tuple[tuple[int, int], Mapping[str, Any]]]()
    processes = dict[tuple[str, int], int]()
    ranks = defaultdict[int, list[set[int]]](list)  # of the groups of each generation
    # The index of a process's group among those of its generation.
    turns = dict[tuple[str, int, int], int]()
    for line in lines:
        if line["what"] == "done":
            done.append(Done(line["at"], line["worker"], tuple(line["parameters"])))
        elif line["what"] == "set-up fails":
            failures.append(SetUpFailure(line["at"], line["worker"], line["how"]))
        elif line["what"] == "refused":
            rule = "in_process goes on with a sharded model"
            text = f"{line['worker']}: {line['error']}"
            refusals.append(Violation(rule, job, line["at"], text))
        elif line["what"] == "restored":
            groups = ranks[line["generation"]]
            if not groups or line["RANK"] in groups[-1]:
                groups.append(set())
            groups[-1].add(line["RANK"])
            turns[line["worker"], line["pid"], line["generation"]] = len(groups)
        elif line["what"] == "step":
            process = line["worker"], line["pid"]
            generation = line.get("generation") or processes.setdefault(process, len(processes) + 1)
            told.append(((generation, turns.get((*process, generation), 1)), line))
    numbers = {
        group: number for number, group in enumerate(sorted({group for group, _ in told}), 1)
    }
    steps = [_step(numbers[group], line) for group, line in told]
    return Records(steps, done, failures, refusals)


def _step(group: int, line: Mapping[str, Any]) -> Step:
    return Step(
        line["at"],
        line["worker"],
        line["step"],
        line.get("WORLD_SIZE", 1),
        group,
        rank=line.get("RANK", 0),
        epoch=line.get("epoch", 0),
        samples=tuple(line.get("samples", ())),
    )


@dataclass(frozen=True, slots=True)
class Group:
    number: int
    world: int
    first: int
    last: int
    first_at: float
    last_at: float
    members: frozenset[str] = frozenset()


def groups_of(steps: Iterable[Step]) -> list[Group]:
    found = defaultdict[int, list[Step]](list)
    for step in steps:
        found[step.group].append(step)
    return [_group(number, taken) for number, taken in sorted(found.items())]


def _group(number: int, steps: Sequence[Step]) -> Group:
    numbers, times = [step.number for step in steps], [step.at for step in steps]
    members = frozenset(step.pod for step in steps)
    span = min(numbers), max(numbers), min(times), max(times)
    return Group(number, steps[0].world, *span, members)


def kept_seconds(groups: Sequence[Group]) -> float:
    """The time of the steps that no later group has repeated.

    A step has one moment, so that one step of each group has no known time: it counts like the
    group's others.
    """
    seconds, again_from = 0.0, inf
    for group in reversed(groups):
        pace = (group.last_at - group.first_at) / max(1, group.last - group.first)
        seconds += pace * max(0, min(group.last + 1, again_from) - group.first)
        again_from = min(again_from, group.first)
    return seconds
