"""Compares all that was seen with the promises, and makes the table of recoveries. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from elastic_pytorch_client.reading.goodput import Goodput
from measure.figures import spread

from soak.checks import bucket, cluster, goodput, preparation, training
from soak.checks.training import Expected
from soak.drawn_acts import Kind
from soak.perform import Hit
from soak.plan import KINDS, SUSPEND
from soak.timeline import (
    Done,
    PodSeen,
    SetUpFailure,
    StatusSeen,
    Step,
    Stored,
    Usage,
    Violation,
)

# After a fault's end, or until the next fault: a pause of the training counts as its effect.
FELT_SECONDS = 30.0
PERCENT = 90  # of the pauses, between their median and the longest


@dataclass(slots=True)
class Seen:
    expected: Mapping[str, Expected]
    hits: Sequence[Hit]
    steps: Mapping[str, Sequence[Step]]
    done: Mapping[str, Sequence[Done]]
    undisturbed: Mapping[str, Sequence[float]]  # the final parameters of jobs with a model
    statuses: Mapping[str, Sequence[StatusSeen]]
    ends: Sequence[PodSeen]
    usages: Sequence[Usage]
    states: Mapping[str, str]
    left: Sequence[str] = ()
    violations: Sequence[Violation] = ()  # that were seen at once
    stock: frozenset[str] = field(default_factory=frozenset)
    restarts: Sequence[PodSeen] = ()
    hostile: Mapping[str, int] | None = None  # acts since the first fault; None: no tenant
    set_up_failures: Mapping[str, Sequence[SetUpFailure]] = field(default_factory=dict)
    killed: frozenset[str] = frozenset()  # pods that outlasted their grace period
    goodput: Mapping[str, Goodput] = field(default_factory=dict)
    stored: Sequence[Stored] = ()


def violations(seen: Seen) -> list[Violation]:
    found = [*seen.violations, *cluster.check_growth(seen.usages)]
    found += cluster.check_memory(seen.usages)
    found += [Violation("nothing leaks", "", 0.0, f"{name} is left") for name in seen.left]
    found += cluster.check_operators(seen.restarts, seen.hits)
    never = [act for act, count in (seen.hostile or {}).items() if not count]
    found += [
        Violation("the hostile tenant does all its acts", "", 0.0, f"{act} was never done")
        for act in never
    ]
    for job in seen.expected:
        found += _of_job(seen, job)
    # Torch up to 2.7 may end a whole rendezvous; its pods are then made again.
    trained = {
        job: {step.pod for step in steps}
        for job, steps in seen.steps.items()
        if job not in seen.stock
    }
    # A pod whose process was killed sets up another one.
    for job, failures in seen.set_up_failures.items():
        trained[job] -= {failure.pod for failure in failures}
    ended = {job: min(end.at for end in done) for job, done in seen.done.items() if done}
    found += cluster.check_healthy_pods(seen.ends, seen.hits, trained, ended)
    return sorted(found, key=lambda violation: violation.at)


def _of_job(seen: Seen, job: str) -> Iterator[Violation]:
    expected, steps, done = seen.expected[job], seen.steps.get(job, ()), seen.done.get(job, ())
    if seen.states.get(job) != "Complete":
        yield Violation(
            "every job ends Complete", job, 0.0, f"{job} is {seen.states.get(job, 'not there')}"
        )
    yield from training.check_groups(expected, steps)
    yield from training.check_units(expected, steps)
    yield from training.check_repeats(expected, steps, seen.hits, seen.killed)
    yield from training.check_end(expected, steps, done, seen.undisturbed.get(job, ()))
    yield from bucket.check_bucket(expected, steps, seen.stored, seen.hits)
    if expected.epochs:
        yield from training.check_samples(expected, steps)
    statuses = seen.statuses.get(job, ())
    yield from preparation.check_set_up_failures(
        expected, steps, seen.set_up_failures.get(job, ()), statuses, seen.hits
    )
    yield from preparation.check_spares(expected, steps, statuses, seen.hits)
    if job not in seen.stock:
        yield from cluster.check_status(job, statuses, steps, seen.hits)
        yield from goodput.check_goodput(
            expected, seen.goodput.get(job, Goodput()), steps, statuses, seen.hits
        )


def pauses(seen: Seen) -> Iterator[tuple[Kind, str, float]]:
    """Each fault's kind, each job that it touched, and the job's longest pause then, in seconds.

    If two faults overlap, a pause may be the other's.
    """
    # Their pauses are long anyway.
    toggled = {job for hit in seen.hits if hit.kind == SUSPEND for job in hit.jobs}
    for hit in seen.hits:
        for job, steps in seen.steps.items():
            told = hit.touches(job) and steps and steps[0].at < hit.at < steps[-1].at
            if not told or (job in toggled and hit.kind != SUSPEND):
                continue
            later = (other.at for other in seen.hits if other.at > hit.until)
            until = min([*later, hit.until + FELT_SECONDS])
            yield hit.kind, job, training.longest_pause(steps, hit.at, until)


def table(seen: Seen) -> list[tuple[Kind, int, Sequence[float] | None]]:
    """Each kind of fault, how often it was made, and the spread of its pauses in seconds."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, _, seconds in pauses(seen):
        by_kind[kind.name].append(seconds)
    counts = [
        (kind, sum(hit.kind == kind for hit in seen.hits))
        for kind in chain(KINDS.values(), (SUSPEND,))
    ]
    return [(kind, count, spread(by_kind[kind.name], PERCENT)) for kind, count in counts if count]
