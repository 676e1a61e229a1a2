"""`failurePolicy.rules`: what a failure means, by its exit code or the pod's conditions.

As with `podFailurePolicy` of a Kubernetes Job (batch/v1), the first rule that matches decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastic_pytorch_operator.api.numbers import format_ranges

PodCondition = tuple[str, str]  # type and status


class FailureAction(StrEnum):
    COUNT = "Count"  # counts against maxFailures and backoffLimit
    IGNORE = "Ignore"
    FAIL_JOB = "FailJob"
    RESTART_GROUP = "RestartGroup"  # does not count, and all worker pods are replaced


@dataclass(frozen=True, slots=True)
class FailureRule:
    index: int
    action: FailureAction
    exit_codes: frozenset[int] = frozenset()  # empty: the rule is about conditions
    excludes: bool = False
    conditions: frozenset[PodCondition] = frozenset()  # of lost pods; one of them is enough

    def matches(self, exit_code: int | None, conditions: Collection[PodCondition]) -> bool:
        """The exit code is the kubelet's; the conditions are a lost pod's."""
        if self.exit_codes:
            return bool(exit_code) and (exit_code in self.exit_codes) is not self.excludes
        return not self.conditions.isdisjoint(conditions)

    def __str__(self) -> str:
        where = f"failurePolicy.rules[{self.index}]"
        if self.exit_codes:
            listed = format_ranges(self.exit_codes).replace(",", ", ")
            return f"{where} (onExitCodes {'NotIn' if self.excludes else 'In'} {listed})"
        listed = ", ".join(f"{type_}={status}" for type_, status in sorted(self.conditions))
        return f"{where} (onPodConditions {listed})"


def find_rule(
    rules: Sequence[FailureRule], exit_code: int | None, conditions: Collection[PodCondition] = ()
) -> FailureRule | None:
    return next((rule for rule in rules if rule.matches(exit_code, conditions)), None)


def to_kubelet_code(exit_code: int) -> int:
    """128 + N for a signal N, for which Python has -N."""
    return 128 - exit_code if exit_code < 0 else exit_code


def parse_rules(rules: Sequence[Mapping[str, Any]]) -> tuple[FailureRule, ...]:
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
