"""What is known of a job's scaling, from one plan to the next: measured, told, and decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.scaling.autoscale import ROOM_SECONDS, Autoscale, Group, decide
from elastic_pytorch_operator.planning.scaling.comparison import Comparison, compare, nearest
from elastic_pytorch_operator.planning.scaling.throughput import Measurement, Throughput, advance_measurement, newest_mark
from elastic_pytorch_operator.spec.job import Job

MAX_SIZES = 16  # of which the measurements are kept
KEEP_SECONDS = 300.0  # between two updates of what is kept of the present size
NO_SAMPLES = "autoscale does nothing: the script reports steps without samples_per_step"


@dataclass(frozen=True, slots=True)
class Scaling:
    """What is known of a job's scaling.

    Attributes:
        measurement: of the present group.
        sizes: what was measured of each size, by workers.
        advice: what the last workers add, as it was last measured.
        told: the present group's advice has been told.
        autoscale: what was decided about the size.
        mute: the script reports steps, but no samples.
    """

    measurement: Measurement = field(default_factory=Measurement)
    sizes: Mapping[int, Throughput] = field(default_factory=lambda: MappingProxyType({}))
    advice: Comparison | None = None
    told: bool = False
    autoscale: Autoscale = field(default_factory=Autoscale)
    mute: bool = False


@dataclass(frozen=True, slots=True)
class ScalingNews:
    """What is to be told now.

    Attributes:
        advice: what was measured; None: nothing that differs from before.
        decision: of autoscale, a sentence; None: it has not changed.
    """

    advice: Comparison | None = None
    decision: str | None = None


NO_NEWS = ScalingNews()


def advance_scaling(job: Job, observed: Observed, known: Scaling) -> tuple[Scaling, ScalingNews]:
    """Measures, compares and decides.

    Args:
        job: with all workers that `spec.replicas` asks for.
        observed: the moment.
        known: what was known before.
    """
    if job.suspend:
        return Scaling(), NO_NEWS  # what the pods are made from may change
    mark = newest_mark(observed.round, observed.agents.values())
    measurement = advance_measurement(known.measurement, observed.round, mark, observed.heartbeat_seconds)
    left = known.measurement if measurement.workers != known.measurement.workers else None
    told = known.told and left is None
    sizes = _with_newest(known.sizes, left.throughput if left else None, 0.0)
    current, advice, news = measurement.throughput, known.advice, NO_NEWS
    if current is not None:
        sizes = _with_newest(sizes, current, KEEP_SECONDS)
        other = None if told else nearest(current, sizes.values())
        compared = compare(current, other) if other else None
        if compared is not None and compared.telling:
            news = NO_NEWS if advice and advice.agrees_with(compared) else ScalingNews(compared)
            advice, told = compared, True
    mute = mark is None and (known.mute or _steps(observed))
    known = Scaling(measurement, sizes, advice, told, known.autoscale, mute)
    return _autoscaled(job, observed, known, news)


def _autoscaled(job: Job, observed: Observed, known: Scaling, news: ScalingNews) -> tuple[Scaling, ScalingNews]:
    if job.min_efficiency is None:
        return replace(known, autoscale=Autoscale(change_seconds=known.autoscale.change_seconds)), news
    before, current = known.autoscale, known.measurement.throughput
    if job.generation != job.status.get("observedGeneration"):  # the spec may ask for another size now
        before = replace(before, next_at=min(before.next_at, observed.now), unchanged=0)
    group = Group(
        sizes=job.sizes,
        size=observed.round.size if observed.round else 0,
        measurement=known.measurement,
        known={**known.sizes, current.workers: current} if current else known.sizes,
        room_seconds=ROOM_SECONDS + job.growth_seconds + job.checkpoint_wait_seconds,
    )
    autoscale, decision = decide(before, group, job.min_efficiency, observed.now)
    return replace(known, autoscale=autoscale), ScalingNews(decision=decision) if decision else news


def note_change(known: Scaling, seconds: float) -> Scaling:
    """Notes for how long a planned change has stopped the training, steps that were repeated included."""
    return replace(known, autoscale=replace(known.autoscale, change_seconds=seconds))


def describe_scaling(job: Job, known: Scaling) -> str:
    """What is known, for people; empty: nothing."""
    parts = [str(known.advice)] if known.advice else []
    if job.min_efficiency is not None:
        state, top = known.autoscale, job.sizes[-1]
        home = state.replicas or top
        if state.trying is not None:
            parts.append(f"autoscale tries {state.trying} instead of {home} workers")
        elif home < top:
            parts.append(f"autoscale keeps {home} of {top} workers")
        elif known.mute:
            parts.append(NO_SAMPLES)
    return "; ".join(parts)


def _steps(observed: Observed) -> bool:
    """Whether a member of the group reports steps."""
    return any(name in observed.agents and observed.agents[name].progress.step is not None for name in observed.ranks)


def _with_newest(sizes: Mapping[int, Throughput], found: Throughput | None, apart_seconds: float) -> Mapping[int, Throughput]:
    """The sizes with a newer measurement of one of them, unless the one there is is hardly older."""
    if found is None or (found.workers in sizes and found.at < sizes[found.workers].at + apart_seconds):
        return sizes
    newest = sorted({**sizes, found.workers: found}.values(), key=lambda known: -known.at)[:MAX_SIZES]
    return MappingProxyType({known.workers: known for known in sorted(newest)})
