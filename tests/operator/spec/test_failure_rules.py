from typing import Any

import pytest
from elastic_pytorch_operator.spec.failure_rules import (
    FailureAction,
    find_rule,
    parse_rules,
    to_kubelet_code,
)

DISRUPTED = ("DisruptionTarget", "True")


def on_codes(action: str, *values: int, operator: str = "In") -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


def on_condition(action: str, type_: str = "DisruptionTarget", **fields: str) -> dict[str, Any]:
    return {"action": action, "onPodConditions": [{"type": type_, **fields}]}


@pytest.mark.parametrize(
    ("rules", "exit_code", "conditions", "decides"),
    [
        ([on_codes("FailJob", 42)], 42, [], 0),
        ([on_codes("FailJob", 42)], 1, [], None),
        ([on_codes("FailJob", 1, 2), on_codes("Ignore", 2)], 2, [], 0),
        ([on_codes("FailJob", 1), on_codes("Ignore", 2)], 2, [], 1),
        ([on_codes("Ignore", 139)], 139, [], 0),
        ([on_codes("Ignore", 11)], 139, [], None),
        ([on_codes("FailJob", *range(1, 256))], 255, [], 0),
        # A hang and a lost pod have no exit code, and success is no failure.
        ([on_codes("FailJob", 42, operator="NotIn")], 1, [], 0),
        ([on_codes("FailJob", 42, operator="NotIn")], 42, [], None),
        ([on_codes("FailJob", 42, operator="NotIn")], None, [], None),
        ([on_codes("FailJob", 42, operator="NotIn")], 0, [], None),
        # Conditions.
        ([on_condition("Ignore")], None, [DISRUPTED], 0),
        ([on_condition("Ignore")], 137, [DISRUPTED], 0),
        ([on_condition("Ignore")], 137, [("DisruptionTarget", "False")], None),
        ([on_condition("Ignore")], 137, [], None),
        ([on_condition("FailJob", "Ready", status="False")], None, [("Ready", "False")], 0),
        ([on_codes("FailJob", 137), on_condition("Ignore")], 137, [DISRUPTED], 0),
        ([on_condition("Ignore"), on_codes("FailJob", 137)], 137, [DISRUPTED], 0),
        ([on_condition("Ignore"), on_codes("FailJob", 137)], 137, [], 1),
        ([], 1, [DISRUPTED], None),
    ],
)
def test_first_matching_rule_decides(
    rules: list[Any], exit_code: int | None, conditions: list[tuple[str, str]], decides: int | None
) -> None:
    rule = find_rule(parse_rules(rules), exit_code, conditions)
    assert (rule.index if rule else None) == decides


@pytest.mark.parametrize(("python", "kubelet"), [(-9, 137), (-11, 139), (0, 0), (1, 1), (137, 137)])
def test_process_that_a_signal_ended_has_the_kubelets_exit_code(python: int, kubelet: int) -> None:
    assert to_kubelet_code(python) == kubelet


def test_one_of_several_conditions_is_enough() -> None:
    several = {
        "action": "Count",
        "onPodConditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "Unknown"}],
    }
    [rule] = parse_rules([several])
    assert rule.action is FailureAction.COUNT
    assert find_rule([rule], None, [("B", "Unknown")]) is rule
    assert find_rule([rule], None, [("B", "True")]) is None


def test_rule_in_words() -> None:
    ranges = on_codes("Ignore", 130, *range(1, 128))
    rules = parse_rules(
        [
            on_codes("FailJob", 3, 1),
            on_codes("Count", 2, operator="NotIn"),
            on_condition("Ignore"),
            ranges,
        ]
    )
    assert [str(rule) for rule in rules] == [
        "failurePolicy.rules[0] (onExitCodes In 1, 3)",
        "failurePolicy.rules[1] (onExitCodes NotIn 2)",
        "failurePolicy.rules[2] (onPodConditions DisruptionTarget=True)",
        "failurePolicy.rules[3] (onExitCodes In 1-127, 130)",
    ]
