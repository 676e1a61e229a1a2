"""What was done to the cluster, and what was seen from outside. Pure data."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from measure.timeline import StepsOfGroup

from soak.plan import KINDS

SUSPEND = "suspend"  # the kind of hit that is no part of the plan
INDEX = re.compile(r"-worker-(\d+)(?:-|$)")


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that was made.

    Attributes:
        at: when it began, seconds since the epoch.
        until: when it had been undone.
        kind: a name of `plan.KINDS`, or SUSPEND.
        what: what was done to what.
        jobs: the jobs that it was done to; empty: to all.
        pods: the pods that are to end by it.
        node: that it was done to; empty: to none.
    """

    at: float
    until: float
    kind: str
    what: str
    jobs: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    node: str = ""

    def touches(self, job: str) -> bool:
        """Whether a job is among those that it was done to."""
        return not self.jobs or job in self.jobs

    @property
    def loses(self) -> bool:
        """Whether workers may end without notice."""
        return self.kind in KINDS and KINDS[self.kind].loses

    @property
    def refuses_writes(self) -> bool:
        """Whether its jobs can save nothing."""
        return self.kind in KINDS and KINDS[self.kind].family == "storage"

    @property
    def unsettles(self) -> bool:
        """Whether the operator or the API server may be away."""
        return self.kind in KINDS and KINDS[self.kind].unsettles

    @property
    def isolates(self) -> bool:
        """Whether workers that cannot be reached may train on."""
        return self.kind in KINDS and KINDS[self.kind].isolates


@dataclass(frozen=True, slots=True)
class Step:
    """A step, as one process of the training tells of it before the gradients are exchanged."""

    at: float
    pod: str
    rank: int
    world: int
    number: int
    group: int  # groups are numbered in the order of their generations
    epoch: int = 0
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """A process has come to the end of the training."""

    at: float
    pod: str
    parameters: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SetUpFailure:
    """The script of a worker has failed on purpose before it had a group."""

    at: float
    pod: str
    how: str


@dataclass(slots=True)
class Group(StepsOfGroup):
    """The steps of one group, without what they hold."""

    number: int
    world: int
    members: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A worker's pod has ended, or its deletion has begun."""

    at: float
    job: str
    pod: str
    node: str
    how: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A container of the operator ended by itself or by force, so that the kubelet starts another."""

    at: float
    pod: str
    node: str
    how: str


@dataclass(frozen=True, slots=True)
class StatusSeen:
    """A job's status has changed.

    Attributes:
        total_failures: that have counted since the job began.
        spares: the pods that wait for a loss, and are ready.
    """

    at: float
    job: str
    state: str
    world: int
    total_failures: int = 0
    spares: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process of ours holds, from /proc of its node."""

    at: float
    process: str  # its node, process id and start: ids are used again
    role: str  # agent or operator
    descriptors: int
    memory_files: int
    threads: int
    resident_mib: float


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not kept."""

    rule: str
    job: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint in the bucket, as its server notes it.

    Attributes:
        at: when it had been stored; or when the server began to look for the newest one, which it then read through.
        version: its generation and step; None: no checkpoint could be read.
        read: whether it was read.
    """

    at: float
    version: tuple[int, int] | None
    read: bool = False


def read_stored(lines: Iterable[Mapping[str, Any]]) -> list[Stored]:
    """The notes of the bucket's server."""
    return [Stored(line["at"], tuple(line["version"]) if line["version"] else None, line["what"] == "read") for line in lines]


def read_training(lines: Iterable[Mapping[str, Any]]) -> tuple[list[Step], list[Done]]:
    """The steps and ends that the processes of one job tell of.

    A group that can write nothing claims no generation, so that the one after its end may have the same. The restored ranks tell them
    apart: each comes once in a group. In scripts without generations, each process of rank 0 has a group of its own.
    """
    done, told = list[Done](), list[tuple[tuple[int, int], Mapping[str, Any]]]()
    processes = dict[tuple[str, int], int]()
    ranks = defaultdict[int, list[set[int]]](list)  # of the groups of each generation
    turns = dict[tuple[str, int, int], int]()  # the place of a process's group among those of its generation
    for line in lines:
        if line["what"] == "done":
            done.append(Done(line["at"], line["worker"], tuple(line["parameters"])))
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
    numbers = {group: number for number, group in enumerate(sorted({group for group, _ in told}), 1)}
    return [_step(numbers[group], line) for group, line in told], done


def read_set_up_failures(lines: Iterable[Mapping[str, Any]]) -> list[SetUpFailure]:
    """The failures before a group that the processes of one job tell of."""
    return [SetUpFailure(line["at"], line["worker"], line["how"]) for line in lines if line["what"] == "set-up fails"]


def read_refusals(job: str, lines: Iterable[Mapping[str, Any]]) -> list[Violation]:
    """Processes of one job that could not go on in the next group, although `in_process` is for that."""
    rule = "in_process goes on with a sharded model"
    return [
        Violation(rule, job, line["at"], f"{line['worker']}: {line['error']}") for line in lines if line["what"] == "refused"
    ]


def _step(group: int, line: Mapping[str, Any]) -> Step:
    rank, world, samples = line.get("RANK", 0), line.get("WORLD_SIZE", 1), tuple(line.get("samples", ()))
    return Step(line["at"], line["worker"], rank, world, line["step"], group, line.get("epoch", 0), samples)


def groups_of(steps: Iterable[Step]) -> list[Group]:
    """The groups that have taken a step, the oldest first."""
    found: dict[int, Group] = {}
    for step in steps:
        group = found.setdefault(step.group, Group(step.number, step.number, step.at, step.at, step.group, step.world))
        group.first, group.last = min(group.first, step.number), max(group.last, step.number)
        group.first_at, group.last_at = min(group.first_at, step.at), max(group.last_at, step.at)
        group.members.add(step.pod)
    return sorted(found.values(), key=lambda group: group.number)


def last_of_each(usages: Sequence[Usage]) -> dict[str, list[Usage]]:
    """The samples of each process, in their order."""
    found = defaultdict(list)
    for usage in usages:
        found[usage.process].append(usage)
    return found
