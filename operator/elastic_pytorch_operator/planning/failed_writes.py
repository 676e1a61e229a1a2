"""The writes that the API server has not accepted, and when each is tried again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.model.observed import Observed, UnreadableObject
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.spec.job import Job

REFUSED_SECONDS = 10.0  # between two tries of what a policy or a quota refuses
FIRST_BACKOFF_SECONDS = 0.2  # after trouble; doubles with each further failure
MAX_BACKOFF_SECONDS = 30.0
REPORTED_AFTER_FAILURES = 3  # in a row: most trouble has passed before
MAX_REPORTED = 3  # faults at once: the deletions of a thousand pods may be refused

# Keys of a job's writes, besides the deletions of its pods.
SERVICE, CLAIMS, POD_GROUP, DRY_RUN = "service", "claims", "pod-group", "dry-run"
PODS, STATUS, JOB = "pods", "status", "job"


@dataclass(frozen=True, slots=True)
class FailedWrite:
    words: str  # of the last try, a clause for people
    retry_at: float
    times: int = 1
    lasting: bool = False  # reported to the user: it is refused, or its trouble does not pass
    reported: bool = False


FailedWrites = Mapping[str, FailedWrite]  # by the keys of the writes


@dataclass(frozen=True, slots=True)
class Answers:
    failed: FailedWrites = field(default_factory=dict)
    invalid: str | None = None  # why the template can make no pod
    generation: int | None = None  # of the last plan's spec
    tried_generation: int = 0  # of the spec whose pods a dry run has tried
    unreadable: tuple[UnreadableObject, ...] = ()

    def about(self, generation: int) -> "Answers":
        """Without refusals of another spec's pods, which say nothing about this one's."""
        if self.generation in (None, generation):
            return replace(self, generation=generation)
        of_pods = (DRY_RUN, POD_GROUP, PODS)
        failed = {key: write for key, write in self.failed.items() if key not in of_pods}
        return replace(self, generation=generation, failed=failed)

    @property
    def unreported(self) -> tuple[str, ...]:
        new = (w.words for w in self.failed.values() if w.lasting and not w.reported)
        return tuple(dict.fromkeys(new))[:MAX_REPORTED]

    def reported(self) -> "Answers":
        failed = {k: replace(w, reported=w.reported or w.lasting) for k, w in self.failed.items()}
        return replace(self, failed=failed)


def note_failure(
    before: FailedWrite | None,
    judgement: Judgement,
    words: str,
    now: float,
    *,
    refused_seconds: float = REFUSED_SECONDS,
    retry_after_seconds: float = 0.0,
) -> FailedWrite:
    times = before.times + 1 if before else 1
    trouble, backoff = judgement is Judgement.TROUBLE, refused_seconds
    if trouble:
        backoff = min(FIRST_BACKOFF_SECONDS * 2 ** min(times - 1, 16), MAX_BACKOFF_SECONDS)
    return FailedWrite(
        words,
        now + max(backoff, retry_after_seconds),
        times,
        lasting=not trouble or times >= REPORTED_AFTER_FAILURES,
        reported=before is not None and before.reported,
    )


def lasting(failed: FailedWrites) -> tuple[str, ...]:
    return tuple(dict.fromkeys(write.words for write in failed.values() if write.lasting))


def describe(failed: FailedWrites) -> str:
    return name_some(lasting(failed))


def name_some(words: Sequence[str]) -> str:
    more = len(words) - MAX_REPORTED
    return "; ".join([*words[:MAX_REPORTED], *([f"and {more} more"] if more > 0 else [])])


def wants_dry_run(job: Job, target: Target, observed: Observed, answers: Answers) -> bool:
    """Whether to try the worker pods of this generation by a dry run.

    The next leader finds the answer in the status: its generation, and the reason of `Suspended`.
    """
    begun = observed.round is not None or job.status.get("round")
    if (
        job.problem
        or observed.pods
        or (begun and not target.stopped)
        or answers.tried_generation == job.generation
    ):
        return False
    if DRY_RUN in answers.failed or job.status.get("observedGeneration") != job.generation:
        return True
    return find_condition(job.status, names.SUSPENDED).get("reason") == names.REFUSED
