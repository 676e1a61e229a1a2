"""`failurePolicy.rules`: what a failure means, by the exit code of a process or a container, or by the conditions of a lost pod.

In the manner of `podFailurePolicy` of a Kubernetes Job (batch/v1): the rules are tried in order,
and the first one that matches decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastic_pytorch_operator.api.numbers import format_ranges

# A process that signal N has ended: 128 + N, as a shell and the kubelet report it.
SIGNAL_BASE = 128

PodCondition = tuple[str, str]  # type and status


class FailureAction(StrEnum):
    """What a failure that a rule matches does."""

    COUNT = "Count"  # counts against maxFailures and backoffLimit
    IGNORE = "Ignore"  # never counts
    FAIL_JOB = "FailJob"  # fails the job at once
    RESTART_GROUP = "RestartGroup"  # does not count, and all worker pods are replaced


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One rule.

    Attributes:
        index: its place in `failurePolicy.rules`.
        exit_codes: which it is about; empty: it is about conditions.
        excludes: it matches all exit codes but these.
        conditions: of lost pods; one of them is enough.
    """

    index: int
    action: FailureAction
    exit_codes: frozenset[int] = frozenset()
    excludes: bool = False
    conditions: frozenset[PodCondition] = frozenset()

    def matches(self, exit_code: int | None, conditions: Collection[PodCondition]) -> bool:
        """Whether the rule decides on a failure.

        Args:
            exit_code: as the kubelet reports it; None or 0: there is none to match.
            conditions: of the pod, if it is lost.
        """
        if self.exit_codes:
            return bool(exit_code) and (exit_code in self.exit_codes) is not self.excludes
        return not self.conditions.isdisjoint(conditions)

    def __str__(self) -> str:
        if self.exit_codes:
            listed = format_ranges(self.exit_codes).replace(",", ", ")
            return f"failurePolicy.rules[{self.index}] (onExitCodes {'NotIn' if self.excludes else 'In'} {listed})"
        listed = ", ".join(f"{type_}={status}" for type_, status in sorted(self.conditions))
        return f"failurePolicy.rules[{self.index}] (onPodConditions {listed})"


def find_rule(
    rules: Sequence[FailureRule], exit_code: int | None, conditions: Collection[PodCondition] = ()
) -> FailureRule | None:
    """The first rule that matches a failure, None if none does.

    Args:
        rules: in their order.
        exit_code: of a process or a container, as the kubelet reports it.
        conditions: type and status, of a pod that is lost.
    """
    return next((rule for rule in rules if rule.matches(exit_code, conditions)), None)


def to_kubelet_code(exit_code: int) -> int:
    """The exit code of a process as the kubelet reports it: 128 + N if signal N ended it, for which Python has -N."""
    return SIGNAL_BASE - exit_code if exit_code < 0 else exit_code


def parse_rules(rules: Sequence[Mapping[str, Any]]) -> tuple[FailureRule, ...]:
    """Reads `failurePolicy.rules`, which the schema admits."""
    return tuple(_parse_rule(index, rule) for index, rule in enumerate(rules))


def _parse_rule(index: int, rule: Mapping[str, Any]) -> FailureRule:
    action, on_codes = FailureAction(rule["action"]), rule.get("onExitCodes")
    if on_codes is not None:
        return FailureRule(
            index, action, frozenset(on_codes["values"]), on_codes["operator"] == "NotIn"
        )
    conditions = (
        (condition["type"], condition.get("status") or "True")
        for condition in rule["onPodConditions"]
    )
    return FailureRule(index, action, conditions=frozenset(conditions))
