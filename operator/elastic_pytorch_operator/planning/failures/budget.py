"""Counts failures of a job's own code against `maxFailures` and `backoffLimit`.

A worker that was killed from outside does not count. But if a pod of its index ends in the same way
again without progress in between, something in its spec ends it, such as the limit of its disk.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.model.failure import FailureRecord, Fault
from elastic_pytorch_operator.spec.failure_rules import FailureAction

FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
PROGRESS_STEPS = 10  # a script that always fails may do a few after each start
STEADY_SECONDS = 300.0  # a round of this length is progress with one step, or without reports
CRASH_LOOP_SECONDS = 5.0  # only a round that has ended sooner makes the next one wait
# The first of them decides where several failures become known together.
GRAVITY = (
    FailureAction.FAIL_JOB,
    FailureAction.RESTART_GROUP,
    FailureAction.COUNT,
    FailureAction.IGNORE,
)


@dataclass(frozen=True, slots=True)
class Budget:
    failures: int = 0  # since the last progress
    total: int = 0  # since the job began
    in_a_row: int = 0  # since the last progress, with those that a rule keeps from counting
    counted_round: int = 0
    counted_pods: frozenset[str] = frozenset()  # UIDs of pods that exist
    step: int = 0  # at the last progress
    backoff_until: float = 0.0
    last: FailureRecord | None = None  # the newest root cause
    fatal: FailureRecord | None = None  # by a rule that fails the job
    group_restarts: int = 0  # how often rules have asked to replace all worker pods
    ends: frozenset[str] = frozenset()  # of pods ended from outside, since the last progress

    def new_cause(self, before: "Budget") -> FailureRecord | None:
        return self.last if self.last is not before.last else None

    def after_progress(self, step: int, seconds: float) -> "Budget":
        """Counts from 0 after a round of that many seconds with progress, not repeated steps."""
        if step >= self.step + PROGRESS_STEPS:
            return replace(self, failures=0, in_a_row=0, ends=frozenset(), step=step)
        steady = self.after_steady_round(seconds)
        return self if steady is self or step <= self.step else replace(steady, step=step)

    def after_steady_round(self, seconds: float) -> "Budget":
        if seconds < STEADY_SECONDS or not (self.failures or self.in_a_row or self.ends):
            return self
        return replace(self, failures=0, in_a_row=0, ends=frozenset())

    def after_round(
        self, number: int, cause: FailureRecord, now: float, *, back_off: bool
    ) -> "Budget":
        if number <= self.counted_round:
            return self
        return replace(self, counted_round=number)._after(cause, now, back_off=back_off)

    def after_pods(
        self, failed: Sequence[FailureRecord], there: Collection[str], now: float, *, back_off: bool
    ) -> "Budget":
        """Counts pods that have failed; `there` has the UIDs of all pods that exist.

        Pods that become known together count once. So does a round with its pods, unless a rule
        asks for something else.
        """
        uids = (self.counted_pods | {record.pod_uid for record in failed}) & frozenset(there)
        new = [
            replace(record, fault=Fault.CODE) if record.end in self.ends else record
            for record in failed
            if record.pod_uid not in self.counted_pods
            and (record.rule is not None or not 0 < record.round <= self.counted_round)
        ]
        budget = self if uids == self.counted_pods else replace(self, counted_pods=uids)
        if not new:
            return budget
        rounds = (record.round for record in new if record.rule is None and action_on(record))
        counted_round = max([self.counted_round, *rounds])
        ends = self.ends | {record.end for record in new if record.end}
        budget = replace(budget, counted_round=counted_round, ends=ends)
        cause = min(
            new,
            key=lambda record: (
                GRAVITY.index(action_on(record) or FailureAction.IGNORE),
                record.failed_at,
                record.worker,
            ),
        )
        return budget._after(cause, now, back_off=back_off or bool(cause.end))

    def _after(self, cause: FailureRecord, now: float, *, back_off: bool) -> "Budget":
        action = action_on(cause)
        if action is FailureAction.FAIL_JOB:
            return replace(self, last=cause, fatal=cause)
        if cause.group_restarts < self.group_restarts:
            return self  # the pods of that group are being replaced
        if action is None:
            return replace(self, last=cause)
        if action is FailureAction.IGNORE and cause.fault is not Fault.CODE:
            # Without a rule it would neither count nor wait.
            return self if cause.pod_uid else replace(self, last=cause)
        budget = replace(self, in_a_row=self.in_a_row + 1, last=cause)
        if action is FailureAction.COUNT:
            budget = replace(budget, failures=self.failures + 1, total=self.total + 1)
        else:
            back_off = True  # it may come back at once
        if action is FailureAction.RESTART_GROUP:
            budget = replace(budget, group_restarts=cause.group_restarts + 1)
        pause_seconds = backoff_seconds(budget.in_a_row) if back_off else 0.0
        return replace(budget, backoff_until=now + pause_seconds)


def action_on(failure: FailureRecord) -> FailureAction | None:
    if failure.rule is not None:
        return failure.rule.action
    return FailureAction.COUNT if failure.fault is Fault.CODE else None


def backoff_seconds(failures: int) -> float:
    """0 after one failure in a row, then 1, 2, 4, … up to 60 s."""
    if failures <= 1:
        return 0.0
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 2, 16), MAX_BACKOFF_SECONDS)
