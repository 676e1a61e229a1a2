"""The page's data of each job in its table, for JSON, which lacks some numbers."""

from collections import Counter
from datetime import datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import RUNNING, JobView
from elastic_pytorch_client.reading.text import finite
from elastic_pytorch_client.views.list_view import note, ready_of_wanted
from elastic_pytorch_client.views.status_view import describe_interruption
from elastic_pytorch_client.views.widgets import BAD, BUSY, GOOD, pool, state_style

MAX_BLOCKS = 24
SPARK_POINTS = 40
TONES = {GOOD: "good", BUSY: "busy", BAD: "bad"}


def row_of(job: JobView) -> dict[str, Any]:
    progress, last = job.progress, job.last_interruption
    losses = map(finite, (*(entry.loss for entry in job.history), progress.loss))
    speed = progress.steps_per_second if job.world else None
    return {
        "id": job.uid,
        "namespace": job.namespace,
        "name": job.name,
        "state": job.state,
        "tone": tone(job.state),
        "trouble": trouble(job),
        "workers": ready_of_wanted(job),
        "blocks": blocks(job),
        "world": job.world,
        "step": progress.step,
        "total": progress.total,
        "fraction": progress.fraction,
        "secondsLeft": progress.seconds_left if job.world else None,
        "loss": "" if progress.loss is None else f"{progress.loss:.4g}",
        "losses": pool([loss for loss in losses if loss is not None], SPARK_POINTS),
        "speed": "" if speed is None else f"{speed:.3g}",
        "goodput": str(job.goodput),
        "lost": job.goodput.lost,
        "interruptions": job.interruptions,
        "interruption": describe_interruption(last) if last is not None else "",
        "note": note(job),
        "created": seconds_of(job.created),
    }


def trouble(job: JobView) -> int:
    """How much a job needs a person, the highest first."""
    if job.failed:
        return 5
    if job.ended or job.suspended:
        return 0
    if job.holds("Degraded") or job.refusals:
        return 4
    if not job.world:
        return 3
    if job.stragglers:
        return 2
    return 0 if job.at_wanted_size else 1


def blocks(job: JobView) -> list[list[str]]:
    """A tone and a state for each wanted worker by its index; none for a large job."""
    if job.ended or job.suspended or job.wanted > MAX_BLOCKS or job.unlisted:
        return []
    workers = sorted(job.workers, key=lambda w: (w.rank is not None, w.name))
    states = {worker.index: worker.state for worker in workers}
    shown = [states[index] for index in sorted(states) if states[index] != "Spare"][:MAX_BLOCKS]
    missing = max(0, job.wanted - len(shown))
    return [[tone(state), state] for state in shown] + [["none", "no pod yet"]] * missing


def tone(state: str) -> str:
    """The meaning of a state's colour: `good`, `busy`, `bad`, or `quiet`."""
    return TONES.get(state_style(state), "quiet")


def seconds_of(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def describe_group(job: JobView) -> str:
    if job.ended:
        return "the job has ended"
    counts = Counter(w.state for w in job.workers if w.state != RUNNING)
    others = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    size = f"{job.size if job.world else 0} of {job.wanted} train"
    world = f"world size {job.world}, round {job.round}" if job.world else ""
    ranks = ""
    if job.backend != names.BACKEND_OPERATOR:
        ranks = f"torchrun ({job.backend}) assigns the ranks"
    return ", ".join(part for part in (size, world, others, job.described_spares, ranks) if part)
