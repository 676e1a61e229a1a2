"""`scheduling.scheduleTimeoutSeconds`: a job with places for too few workers gives them back.

Without that, two jobs that each hold half of what both need wait for each other. The pause before
the next try differs from job to job and from try to try, so that one of them comes back first.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.planning.workers.worker_pods import Replicas
from elastic_pytorch_operator.spec.job import Job

# The longest first pause; each further one is twice as long. Half of it exceeds the 10 s for which
# the scheduler leaves a pod alone that had no node, so it places other jobs' waiting pods first.
FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ScheduleWait:
    timeouts: int = 0  # in a row
    short_since: float | None = None  # the job has held places for too few workers since then
    retry_at: float = 0.0  # it asks for no pod before
    generation: int = 0  # of the spec; another one is tried at once
    recheck_at: float | None = None
    retry_time: str | None = None  # RFC 3339, the same while it waits; None: it does not

    def explain(self, job: Job) -> str:
        return (
            f"fewer than {job.minimum} workers had a node for {job.scheduling.timeout_seconds} s "
            "(scheduling.scheduleTimeoutSeconds): their pods are deleted to make room for other "
            f"jobs, and the next attempt is at {self.retry_time}"
        )


NO_WAIT = ScheduleWait()


def judge_schedule(
    job: Job,
    target: Target,
    observed: Observed,
    candidates: Sequence[Candidate],
    known: ScheduleWait,
) -> ScheduleWait:
    """A job that holds no place keeps its pods, as they take nothing and autoscalers see them."""
    timeout_seconds, now = job.scheduling.timeout_seconds, observed.now
    if timeout_seconds is None or target.stopped or observed.group_size:
        return NO_WAIT
    if now < known.retry_at and known.generation == job.generation:
        return known if known.retry_time else _wait(job, observed, known.timeouts, known.retry_at)
    alive = {candidate.worker for candidate in candidates if candidate.alive}
    held = sum(bool(pod.node) and pod.name in alive for pod in observed.pods)
    if held >= job.minimum:
        return NO_WAIT
    if not held:
        return ScheduleWait(known.timeouts)
    since = now if known.short_since is None else known.short_since
    if now < since + timeout_seconds:
        return ScheduleWait(known.timeouts, since, recheck_at=since + timeout_seconds)
    timeouts = known.timeouts + 1
    return _wait(job, observed, timeouts, now + pause_seconds(job.uid, timeouts))


def pause_seconds(job_uid: str, timeouts: int) -> float:
    """From half of the longest pause after that many timeouts to all of it, by a hash."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(timeouts - 1, 16), MAX_PAUSE_SECONDS)
    digest = hashlib.sha256(f"{job_uid}/{timeouts}".encode()).digest()
    return longest * (1 + int.from_bytes(digest[:4], "big") / 2**32) / 2


def give_back(replicas: Replicas, wait: ScheduleWait, observed: Observed) -> Replicas:
    if observed.now >= wait.retry_at:
        return replicas
    others = {pod.name for pod in (*replicas.discard, *replicas.abandon)}
    alive = (pod.name for pod in observed.pods if pod.stays)
    return replace(replicas, create=(), victims=frozenset(alive) - others)


def _wait(job: Job, observed: Observed, timeouts: int, retry_at: float) -> ScheduleWait:
    return ScheduleWait(
        timeouts,
        retry_at=retry_at,
        generation=job.generation,
        recheck_at=retry_at,
        retry_time=observed.time_of(retry_at),
    )
