"""How failures count against `failurePolicy.maxFailures`: those of the job's own code, since it last made progress.

A worker that somebody else has killed is a cause, but counts nothing and makes nobody wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.failures import FailureRecord, Fault, root_cause

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MOST_SECONDS = 60.0
PROGRESS_STEPS = 10  # so many steps further is progress even without a checkpoint
STEADY_SECONDS = 300.0  # a round that has lasted so long is progress of a script that reports no steps
CRASH_LOOP_SECONDS = 5.0  # only a round that has ended sooner makes the next one wait


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job has used up.

    Attributes:
        failures: counted since the last progress.
        counted_round: the newest round whose failure has been counted.
        counted_pods: UIDs of the pods whose failure has been counted, and that are still there to report it again.
        step: the step at the last progress.
        checkpoint_step: the same, of checkpoints.
        hold_until: when a group that has failed may be restarted, monotonic seconds.
        last: the newest root cause.
    """

    failures: int = 0
    counted_round: int = 0
    counted_pods: frozenset[str] = frozenset()
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

    def after_round(self, number: int, cause: FailureRecord, now: float, *, hold: bool) -> "Budget":
        """The budget once the cause of a round's failure is known. A round counts once.

        Args:
            number: of the round.
            cause: of its failure.
            now: monotonic seconds.
            hold: the group is to wait before it is restarted.
        """
        if number <= self.counted_round:
            return self
        return replace(self, counted_round=number)._after(cause, now, hold=hold)

    def after_pods(self, failed: Sequence[FailureRecord], now: float, *, hold: bool) -> "Budget":
        """The budget once pods are known to have failed. Those that become known together count as one.

        Args:
            failed: all pods that have failed and are still there.
            now: monotonic seconds.
            hold: the job is to wait before they are replaced.
        """
        uids = frozenset(record.pod_uid for record in failed)
        cause = root_cause([record for record in failed if record.pod_uid not in self.counted_pods])
        budget = self if uids == self.counted_pods else replace(self, counted_pods=uids)
        return budget if cause is None else budget._after(cause, now, hold=hold)

    def _after(self, cause: FailureRecord, now: float, *, hold: bool) -> "Budget":
        if cause.fault is not Fault.CODE:
            return replace(self, last=cause)
        count = self.failures + 1
        return replace(self, failures=count, hold_until=now + (backoff_seconds(count) if hold else 0.0), last=cause)


def backoff_seconds(failures: int) -> float:
    """How long a group waits for its restart after so many failures in a row: not at all, then 1, 2, 4, … at most 60 s."""
    if failures <= 1:
        return 0.0
    return float(min(BACKOFF_FIRST_SECONDS * 2.0 ** (failures - 2), BACKOFF_MOST_SECONDS))
