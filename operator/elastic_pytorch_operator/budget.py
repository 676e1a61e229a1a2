"""How failures count against `failurePolicy.maxFailures`: those of the job's own code, since it last made progress.

A worker that somebody else has killed is a cause, but counts nothing and makes nobody wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.failures import FailureRecord, root_cause

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MOST_SECONDS = 60.0
PROGRESS_STEPS = 10  # so many steps further is progress even without a checkpoint
STEADY_SECONDS = 300.0  # a round that has lasted so long is progress of a script that reports no steps
CRASH_LOOP_SECONDS = 5.0  # only a round that has ended sooner makes the next one wait
REMEMBERED_FAILURES = 256


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job has used up.

    Attributes:
        failures: counted since the last progress.
        counted: ids of the failures seen, so that none counts twice; bounded.
        step: the step at the last progress.
        checkpoint_step: the same, of checkpoints.
        hold_until: when a group that has failed may be restarted, monotonic seconds.
        last: the newest root cause.
    """

    failures: int = 0
    counted: tuple[str, ...] = ()
    step: int = 0
    checkpoint_step: int = 0
    hold_until: float = 0.0
    last: FailureRecord | None = None

    def after_progress(self, step: int | None, checkpoint_step: int | None) -> "Budget":
        """The budget once the job has come to a step: the count starts again if that is progress.

        A step that a restart has thrown back and that is reached again is none.
        """
        checkpointed = checkpoint_step is not None and checkpoint_step > self.checkpoint_step
        stepped = step is not None and step >= self.step + PROGRESS_STEPS
        if not (checkpointed or stepped):
            return self
        return replace(
            self,
            failures=0,
            step=max(self.step, step or 0),
            checkpoint_step=max(self.checkpoint_step, checkpoint_step or 0),
        )

    def after_steady_round(self, seconds: float) -> "Budget":
        """The budget of a script that reports no steps, whose round has lasted so long: fresh if that is long enough."""
        return replace(self, failures=0) if self.failures and seconds >= STEADY_SECONDS else self

    def after_failures(self, failures: Sequence[FailureRecord], now: float, round_seconds: float = 0.0) -> "Budget":
        """The budget once failures have become known. Those of one round count as one.

        Args:
            failures: all that are known of now.
            now: monotonic seconds.
            round_seconds: how long the round had lasted.
        """
        new = [failure for failure in failures if failure.id not in self.counted]
        if not new:
            return self
        counted = (*self.counted, *(failure.id for failure in new))[-REMEMBERED_FAILURES:]
        cause = root_cause(new)
        if cause is None:
            return replace(self, counted=counted)
        same_round = [f for f in failures if f.id in self.counted and f.in_round and not f.symptom]
        if same_round and cause.in_round:
            return replace(self, counted=counted)
        if cause.foreign:
            return replace(self, counted=counted, last=cause)
        count = self.failures + 1
        hold = backoff_seconds(count) if round_seconds < CRASH_LOOP_SECONDS else 0.0
        return replace(self, failures=count, counted=counted, hold_until=now + hold, last=cause)


def backoff_seconds(failures: int) -> float:
    """How long a group waits for its restart after so many failures in a row: not at all, then 1, 2, 4, … at most 60 s."""
    if failures <= 1:
        return 0.0
    return float(min(BACKOFF_FIRST_SECONDS * 2.0 ** (failures - 2), BACKOFF_MOST_SECONDS))
