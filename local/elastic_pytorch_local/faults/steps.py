"""The recorded steps of a training, the groups that took them, and their changes. Pure.

Times are from the nodes' clocks. On kind and in local mode these are this machine's, so that they
compare with each other, and with the time of a fault.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

PACE_SECONDS = 3.0
MAX_STEPS = 100_000  # the newest ones of a log


@dataclass(frozen=True, slots=True)
class Step:
    at: float  # seconds since the epoch
    pod: str
    number: int
    world: int  # workers, or processes, of the group; 0: unknown
    group: int = 0  # in the order of their formation
    total: int = 0  # 0: unknown
    loss: float = 0.0  # 0: unknown


@dataclass(frozen=True, slots=True)
class Began:
    at: float
    pod: str
    world: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a training, which only looks like a step with its loss."""

    at: float
    pod: str


@dataclass(frozen=True, slots=True)
class Started:
    at: float
    pod: str
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """A round that the agent of rank 0 has begun, whatever its script prints."""

    at: float
    pod: str
    world: int


Record = Step | Began | Done | Started | RoundBegan

# The pattern of each record, and how it is made of the match, the pod, and the time of the line.
_LOSS = r"(\d+\.\d+|nan|inf)"
_OF_WORKERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str, str], Record]], ...] = (
    # Of examples/all-reduce, which prints the time
    (
        re.compile(r"STEP (\d+) world=(\d+) time=(\d+\.\d{3})"),
        lambda found, pod, _: Step(float(found[3]), pod, number=int(found[1]), world=int(found[2])),
    ),
    (
        re.compile(r"INIT rank=0 world=(\d+) restart=-?\d+ time=(\d+\.\d{3})"),
        lambda found, pod, _: Began(float(found[2]), pod, world=int(found[1])),
    ),
    # Of examples/char-lm
    (
        re.compile(r"start at step \d+/\d+  workers (\d+)"),
        lambda found, pod, stamp: Began(seconds_of(stamp), pod, world=int(found[1])),
    ),
    (
        re.compile(rf"step (\d+)/(\d+)  loss {_LOSS}  workers (\d+)"),
        lambda found, pod, stamp: Step(
            seconds_of(stamp),
            pod,
            int(found[1]),
            world=int(found[4]),
            total=int(found[2]),
            loss=float(found[3]),
        ),
    ),
    (
        re.compile(rf"done at step \d+/\d+  validation loss {_LOSS}"),
        lambda _, pod, stamp: Done(seconds_of(stamp), pod),
    ),
    # Of the agent, which prints the time
    (
        re.compile(
            r"elastic_pytorch\.agent (\S{10,30}Z) [A-Z]+ "
            r"workers (?:started|taken along) in \d+ ms: pids (\d+(?: \d+)*)"
        ),
        lambda found, pod, _: Started(
            seconds_of(found[1]), pod, tuple(int(pid) for pid in found[2].split())
        ),
    ),
    (
        re.compile(
            r"elastic_pytorch\.agent (\S{10,30}Z) [A-Z]+ round \d{1,18}: rank 0 of (\d{1,9}),"
        ),
        lambda found, pod, _: RoundBegan(seconds_of(found[1]), pod, world=int(found[2])),
    ),
)
# Of any other script: a step and a loss, as in `iter 10: loss 2.31, time 20 ms`. Without a group,
# its `world` is 0, and its group is the round at that time.
_OF_ANY = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?)\b\W{0,20}(\d{1,18})(?:\s{0,9}/\s{0,9}(\d{1,18}))?\b"
    r".{0,300}?\bloss\W{1,5}?([-+]?\d{1,18}(?:\.\d{1,30})?(?:e[-+]?\d{1,3})?|nan|inf)\b",
    re.IGNORECASE,
)


def read_worker_line(pod: str, line: str) -> list[Record]:
    """The records of a line of a worker's log, which begins with its RFC 3339 time.

    A killed process leaves its last line without an end, so that several records may be in a line.
    """
    records, stamp = list[tuple[int, Record]](), line.partition(" ")[0]
    for pattern, make in _OF_WORKERS:
        for found in pattern.finditer(line):
            with suppress(ValueError):  # no record after all, or a line without a time
                records.append((found.start(), make(found, pod, stamp)))
    if not records and (any_ := _OF_ANY.search(line)):
        with suppress(ValueError):
            number, total = int(any_[1]), int(any_[2] or 0)
            return [Step(seconds_of(stamp), pod, number, 0, total=total, loss=float(any_[3]))]
    return [record for _, record in sorted(records, key=lambda place: place[0])]


def seconds_of(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


class StepLog:
    """The records of a job's workers, in whatever order their lines come."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.pids: dict[str, tuple[int, ...]] = {}
        self._known: set[Record] = set()
        self._steps: list[Step] = []
        self._began: list[float] = []
        self._began_of: dict[str, list[float]] = {}
        self._rounds: list[RoundBegan] = []
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Adds a record once, as a log that is followed again begins again."""
        if record in self._known:
            return
        self._known.add(record)
        match record:
            case Step():
                insort(self._steps, record, key=lambda step: step.at)
                if len(self._steps) > MAX_STEPS:
                    self._known.discard(self._steps.pop(0))
            case Began():
                insort(self._began, record.at)
                insort(self._began_of.setdefault(record.pod, []), record.at)
            case Started():
                self.pids[record.pod] = record.pids
            case RoundBegan():
                insort(self._rounds, record, key=lambda round_: round_.at)

    def last(self) -> Step | None:
        return self._steps[-1] if self._steps else None

    def steps(self, since: float = -inf) -> list[Step]:
        """The steps since a moment, and the last one before it, with their groups.

        A step's group is the last one that its pod began. A script without groups counts as rank 0.
        """
        first = max(0, bisect_left(self._steps, since, key=lambda step: step.at) - 1)
        return [placed for step in self._steps[first:] if (placed := self._placed(step))]

    def _placed(self, step: Step) -> Step | None:
        if step.world:
            return replace(step, group=self._group_of(step))
        number = bisect_left(self._rounds, step.at, key=lambda round_: round_.at)
        if not number or self._rounds[number - 1].pod != step.pod:
            return None
        return replace(step, group=number, world=self._rounds[number - 1].world)

    def _group_of(self, step: Step) -> int:
        own = self._began_of.get(step.pod, [])
        index = bisect_left(own, step.at)  # a step before its group's begin is of an older one
        return bisect_right(self._began, own[index - 1]) if index else 0


def steps_per_second(log: StepLog) -> float | None:
    """The pace of the newest group's last seconds; None before its second step."""
    newest = log.last()
    steps = log.steps(newest.at - PACE_SECONDS) if newest else []
    own = [step for step in steps if step.group == steps[-1].group]
    if not own or own[0].at == own[-1].at:
        return None
    return (own[-1].number - own[0].number) / (own[-1].at - own[0].at)


@dataclass(frozen=True, slots=True)
class Change:
    last: Step  # of the group before
    first: Step  # of the next group

    @property
    def pause_seconds(self) -> float:
        return self.first.at - self.last.at

    @property
    def repeated(self) -> int:
        return max(0, self.last.number - self.first.number + 1)


def changes(steps: Iterable[Step], since: float) -> list[Change]:
    """The changes of the group since a moment, in seconds since the epoch.

    Steps of a group after the first step of a later one do not count.
    """
    found, last = list[Change](), None
    for step in steps:
        if last is not None and step.group < last.group:
            continue
        if last is not None and step.group > last.group and step.at > since:
            found.append(Change(last, step))
        last = step
    return found
