"""From what was recorded around a fault to the figures of the trial. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from records import Declared, Init, PodCreated, Record, Started, Step, Taken

QUIET_SECONDS = 3.0  # of steps before the fault, for the picture


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault, and what was recorded until the job was whole again.

    Attributes:
        fault_at: when the fault was made.
        wanted: how many workers the job wants after it.
        before: how many it had.
        records: everything recorded of the job.
        restarts: container restarts, and disappearances, of pods that were not the fault's victims.
        failures: how many failures the operator has counted against the job.
        ended_at: when the job was found whole again.
    """

    fault_at: float
    wanted: int
    before: int
    records: Sequence[Record]
    restarts: int
    failures: int
    ended_at: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A trial in numbers; times in seconds. None: it did not happen.

    Attributes:
        trains_again: from the fault to the first step of the new group.
        pause: from the last step before to the first step after.
        steps_lost: steps that were done again.
        whole: from the fault to the first step at the wanted size.
        replaced: from the fault to the operator's making of another pod.
        longest_gap: the longest time between two steps after the fault.
        detect: from the fault to the operator's declaring of the round that first trained again.
        start: from there to the last of its members' worker processes being started.
        init: from there to rank 0's having joined its group.
        first_step: from there to its first step.
        rounds: how many rounds were declared.
        restarts: of pods that had nothing to do with the fault.
        failures: counted against the job.
    """

    trains_again: float | None
    pause: float | None
    steps_lost: int | None
    whole: float | None
    replaced: float | None
    longest_gap: float | None
    detect: float | None
    start: float | None
    init: float | None
    first_step: float | None
    rounds: int
    restarts: int
    failures: int


@dataclass(frozen=True, slots=True)
class Group:
    """A group of workers that has come to a first step."""

    init: Init
    step: Step


def figures(trial: Trial) -> Figures:
    """Compute a trial's figures."""
    at = trial.fault_at
    records = sorted((r for r in trial.records if r.at <= trial.ended_at), key=lambda record: record.at)
    later = [record for record in records if record.at > at]
    steps = [record for record in records if isinstance(record, Step)]
    rounds = [record for record in later if isinstance(record, Declared)]
    created = next((record for record in later if isinstance(record, PodCreated)), None)
    new = list(groups(later))
    again = new[0] if new else None
    whole = next((group for group in new if group.step.world == trial.wanted), None)
    last = next((s for s in reversed(steps) if again and s.at < again.init.at), None)
    declared = next((d for d in reversed(rounds) if again and d.at < again.init.at), None)
    started = last_start(declared, records) if declared else None
    seen = [s.at for s in steps if s.at > at]
    before = [s.at for s in steps if s.at <= at][-1:]
    gaps = [after - earlier for earlier, after in pairwise(before + seen)]
    again_at = again.step.at if again else None
    init_at = again.init.at if again else None
    declared_at = declared.at if declared else None
    return Figures(
        trains_again=between(at, again_at),
        pause=between(last.at if last else None, again_at),
        steps_lost=max(0, last.number - again.step.number + 1) if last and again else None,
        whole=between(at, whole.step.at if whole else None),
        replaced=between(at, created.at if created else None),
        longest_gap=max(gaps, default=None),
        detect=between(at, declared_at),
        start=between(declared_at, started),
        init=between(started, init_at),
        first_step=between(init_at, again_at),
        rounds=len(rounds),
        restarts=trial.restarts,
        failures=trial.failures,
    )


def groups(records: Sequence[Record]) -> Iterator[Group]:
    """Yield each group that came to a step, from records in the order of time."""
    init: Init | None = None
    for record in records:
        if isinstance(record, Init) and record.rank == 0:
            init = record
        elif init and isinstance(record, Step) and record.pod == init.pod:
            yield Group(init, record)
            init = None


def last_start(declared: Declared, records: Sequence[Record]) -> float | None:
    """When the last member of a round had started its worker processes; None before all have."""
    members = {record.pod: record.at for record in records if isinstance(record, Taken) and record.round == declared.round}
    starts = []
    for pod, taken_at in members.items():
        started = (r.at for r in records if isinstance(r, Started) and r.pod == pod and r.at >= taken_at)
        if (at := next(started, None)) is not None:
            starts.append(at)
    return max(starts) if len(starts) == len(declared.members) else None


def story(trial: Trial) -> list[tuple[float, int, int]]:
    """The steps around the fault, as (seconds since the fault, step number, world size), for the picture."""
    begin = trial.fault_at - QUIET_SECONDS
    steps = sorted((r for r in trial.records if isinstance(r, Step) and begin <= r.at <= trial.ended_at), key=lambda s: s.at)
    return [(round(step.at - trial.fault_at, 3), step.number, step.world) for step in steps]


def between(begin: float | None, end: float | None) -> float | None:
    """The seconds between two moments, if both came."""
    return None if begin is None or end is None else round(end - begin, 3)
