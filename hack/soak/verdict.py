"""Compares all that was seen with the promises, and makes the table of recoveries. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from elastic_pytorch_client.reading.job_view import JobView
from measure.figures import spread

from soak.checks import bucket, cluster, goodput, preparation, training
from soak.jobs import Expected
from soak.perform import Hit
from soak.plan import KINDS, SUSPEND, Kind
from soak.timeline import PodSeen, Records, StatusSeen, Stored, Usage, Violation

# After a fault's end, or until the next fault: a pause of the training counts as its effect.
FELT_SECONDS = 30.0
PERCENT = 90  # of the pauses, between their median and the longest


@dataclass(slots=True)
class Seen:
    expected: Mapping[str, Expected]
    hits: Sequence[Hit]
    records: Mapping[str, Records]
    undisturbed: Mapping[str, Sequence[float]]  # the final parameters of jobs with a model
    statuses: Mapping[str, Sequence[StatusSeen]]
    ends: Sequence[PodSeen]
    usages: Sequence[Usage]
    jobs: Mapping[str, JobView]
    left: Sequence[str] = ()
    violations: Sequence[Violation] = ()  # that were seen at once
    restarts: Sequence[PodSeen] = ()
    hostile: Mapping[str, int] | None = None  # acts since the first fault; None: no tenant
    killed: frozenset[str] = frozenset()  # pods that outlasted their grace period
    stored: Sequence[Stored] = ()


def violations(seen: Seen) -> list[Violation]:
    found = [*seen.violations, *cluster.check_growth(seen.usages)]
    found += cluster.check_memory(seen.usages)
    found += [Violation("nothing leaks", "", 0.0, f"{name} is left") for name in seen.left]
    found += cluster.check_operators(seen.restarts, seen.hits)
    rule, counts = "the hostile tenant does all its acts", seen.hostile or {}
    never = (act for act, count in counts.items() if not count)
    found += [Violation(rule, "", 0.0, f"{act} was never done") for act in never]
    for job in seen.expected:
        found += _of_job(seen, job)
    # Torch up to 2.7 may end a whole rendezvous; the pods of stock torchrun are then made again.
    # A pod whose process was killed sets up another one.
    trained = {
        job: {step.pod for step in told.steps} - {failure.pod for failure in told.failures}
        for job, told in seen.records.items()
        if not seen.expected[job].stock
    }
    ended = {job: min(e.at for e in told.done) for job, told in seen.records.items() if told.done}
    found += cluster.check_healthy_pods(seen.ends, seen.hits, trained, ended)
    return sorted(found, key=lambda violation: violation.at)


def _of_job(seen: Seen, job: str) -> Iterator[Violation]:
    expected, told, view = seen.expected[job], seen.records[job], seen.jobs[job]
    steps, statuses = told.steps, seen.statuses.get(job, ())
    if view.state != "Complete":
        yield Violation("every job ends Complete", job, 0.0, f"{job} is {view.state}")
    yield from training.check_groups(expected, steps)
    yield from training.check_units(expected, steps)
    yield from training.check_repeats(expected, steps, seen.hits, seen.killed)
    yield from told.refusals
    yield from training.check_end(expected, steps, told.done, seen.undisturbed.get(job, ()))
    yield from bucket.check_bucket(expected, steps, seen.stored, seen.hits)
    yield from training.check_samples(expected, steps)
    yield from preparation.check_set_up_failures(
        expected, steps, told.failures, statuses, seen.hits
    )
    yield from preparation.check_spares(expected, steps, statuses, seen.hits)
    if not expected.stock:
        yield from cluster.check_status(job, statuses, steps, seen.hits)
        yield from goodput.check_goodput(expected, view.goodput, steps, statuses, seen.hits)


def pauses(seen: Seen) -> Iterator[tuple[Kind, str, float]]:
    """Each fault's kind, each job that it touched, and the job's longest pause then, in seconds.

    If two faults overlap, a pause may be the other's.
    """
    # Their pauses are long anyway.
    toggled = {job for hit in seen.hits if hit.kind == SUSPEND for job in hit.jobs}
    for hit in seen.hits:
        for job, told in seen.records.items():
            steps = told.steps
            trains = hit.touches(job) and steps and steps[0].at < hit.at < steps[-1].at
            if not trains or (job in toggled and hit.kind != SUSPEND):
                continue
            later = (other.at for other in seen.hits if other.at > hit.until)
            until = min([*later, hit.until + FELT_SECONDS])
            yield hit.kind, job, training.longest_pause(steps, hit.at, until)


def table(seen: Seen) -> list[tuple[Kind, int, Sequence[float] | None]]:
    """Each kind of fault, how often it was made, and the spread of its pauses in seconds."""
    by_kind: dict[Kind, list[float]] = defaultdict(list)
    for kind, _, seconds in pauses(seen):
        by_kind[kind].append(seconds)
    counts = Counter(hit.kind for hit in seen.hits)
    made = (kind for kind in (*KINDS.values(), SUSPEND) if counts[kind])
    return [(kind, counts[kind], spread(by_kind[kind], PERCENT)) for kind in made]
