"""The podFailurePolicy of a Job, as rules of a failurePolicy, which come after it."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.remarks import Remarks

Manifest = dict[str, Any]

SAME_ACTIONS = ("FailJob", "Ignore", "Count")
MOST_RULES = 20


def failure_rules(
    path: str, rules: Sequence[Mapping[str, Any]], container: object, remarks: Remarks
) -> list[Manifest]:
    kept: list[Manifest] = []
    for place, rule in enumerate(rules):
        migrated = _rule(f"{path}[{place}]", rule, container, remarks)
        if migrated is not None and len(kept) < MOST_RULES:
            kept.append(migrated)
    return kept


def _rule(
    path: str, rule: Mapping[str, Any], container: object, remarks: Remarks
) -> Manifest | None:
    action = rule.get("action")
    if action == "FailIndex":
        remarks.add(
            f"{path}.action",
            "FailIndex becomes FailJob: the group cannot be complete without one of its workers",
        )
        action = "FailJob"
    elif action not in SAME_ACTIONS:
        remarks.add(f"{path}.action", f"{action} is not known here: the rule is dropped")
        return None
    codes = rule.get("onExitCodes")
    if codes is None:
        return {
            "action": action,
            "onPodConditions": copy.deepcopy(list(rule.get("onPodConditions") or ())),
        }
    if codes.get("containerName") not in (None, container):
        text = (
            "is dropped: exit codes are those of the training process, not of "
            f"{codes['containerName']}"
        )
        remarks.add(path, text)
        return None
    values = [int(value) for value in codes.get("values") or ()]
    allowed = [value for value in values if 1 <= value <= 255]
    if len(allowed) < len(values):
        remarks.add(
            f"{path}.onExitCodes.values",
            "only those from 1 to 255 are kept: no process ends with another, and 0 is no failure",
        )
    if not allowed and codes.get("operator") == "NotIn":
        return {"action": action, "onExitCodes": {"operator": "In", "values": [*range(1, 256)]}}
    if not allowed:
        return None
    return {"action": action, "onExitCodes": {"operator": codes.get("operator"), "values": allowed}}
