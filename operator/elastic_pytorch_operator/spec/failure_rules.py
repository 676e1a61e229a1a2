"""`failurePolicy.rules`: what a failure means, by the exit code of a process or a container, or by the conditions of a lost pod.

In the manner of `podFailurePolicy` of a Kubernetes Job (batch/v1): the rules are tried in order, and the first one that matches decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastic_pytorch_operator.api.numbers import format_ranges

MAX_RULES = 20
MAX_CONDITIONS = 20  # in one rule
HIGHEST_EXIT_CODE = 255
SIGNAL_BASE = 128  # a process that signal N has ended: 128 + N, as a shell and the kubelet report it

PodCondition = tuple[str, str]  # type and status


class FailureAction(StrEnum):
    """What a failure that a rule matches does."""

    COUNT = "Count"  # counts against maxFailures and backoffLimit
    IGNORE = "Ignore"  # never counts
    FAIL_JOB = "FailJob"  # fails the job at once
    RESTART_GROUP = "RestartGroup"  # does not count, and all worker pods are replaced


class InvalidRule(ValueError):
    """A rule that cannot be carried out as written.

    Attributes:
        path: the field at fault, below `rules`, such as `[0].action`.
        problem: what is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"rules{path}: {problem}")
        self.path = path
        self.problem = problem


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


def parse_rules(rules: object) -> tuple[FailureRule, ...]:
    """Reads `failurePolicy.rules`.

    Raises:
        InvalidRule: a rule cannot be read; it names the field and the reason.
    """
    if rules is None:
        return ()
    if not isinstance(rules, list) or len(rules) > MAX_RULES:
        raise InvalidRule("", f"must be a list of at most {MAX_RULES} rules")
    return tuple(_parse_rule(index, rule) for index, rule in enumerate(rules))


def _parse_rule(index: int, rule: object) -> FailureRule:
    path = f"[{index}]"
    if not isinstance(rule, Mapping):
        raise InvalidRule(path, "must be an object with an action, and onExitCodes or onPodConditions")
    try:
        action = FailureAction(str(rule.get("action")))
    except ValueError:
        raise InvalidRule(f"{path}.action", f"must be one of {', '.join(FailureAction)}") from None
    on_codes, on_conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if (on_codes is None) == (on_conditions is None):
        raise InvalidRule(path, "must have exactly one of onExitCodes and onPodConditions")
    if on_codes is None:
        return FailureRule(index, action, conditions=_parse_conditions(f"{path}.onPodConditions", on_conditions))
    codes, excludes = _parse_exit_codes(f"{path}.onExitCodes", on_codes)
    return FailureRule(index, action, codes, excludes)


def _parse_exit_codes(path: str, found: Any) -> tuple[frozenset[int], bool]:
    operator = found.get("operator") if isinstance(found, Mapping) else None
    if operator not in ("In", "NotIn"):
        raise InvalidRule(f"{path}.operator", "must be In or NotIn")
    values = found.get("values")
    if not isinstance(values, list) or not 0 < len(values) <= HIGHEST_EXIT_CODE or not all(map(_is_exit_code, values)):
        raise InvalidRule(f"{path}.values", f"must be a list of exit codes from 1 to {HIGHEST_EXIT_CODE}")
    return frozenset(values), operator == "NotIn"


def _is_exit_code(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= HIGHEST_EXIT_CODE


def _parse_conditions(path: str, found: Any) -> frozenset[PodCondition]:
    if not isinstance(found, list) or not 0 < len(found) <= MAX_CONDITIONS:
        raise InvalidRule(path, "must be a list of conditions")
    conditions = set()
    for index, condition in enumerate(found):
        type_ = condition.get("type") if isinstance(condition, Mapping) else None
        if not isinstance(type_, str) or not type_:
            raise InvalidRule(f"{path}[{index}].type", "must name a condition of pods, such as DisruptionTarget")
        status = condition.get("status") or "True"
        if status not in ("True", "False", "Unknown"):
            raise InvalidRule(f"{path}[{index}].status", "must be True, False or Unknown, in quotes")
        conditions.add((type_, status))
    return frozenset(conditions)
