"""Earlier rules of restarts and failures, as a failurePolicy."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.launch import Launch
from elastic_pytorch_client.migration.remarks import Remarks
from elastic_pytorch_client.migration.sources.training_pods import MAX_FAILURES, TrainingPods

Manifest = dict[str, Any]

DEFAULT_MAX_FAILURES = 3
PERMANENT = 127  # the last exit code that ExitCode does not retry
SAME_ACTIONS = ("FailJob", "Ignore", "Count")


def failure_policy(
    path: str,
    restart_policy: str,
    backoff: tuple[str, int | None],
    pods: TrainingPods,
    remarks: Remarks,
    restarts_path: str = "",
) -> Manifest:
    """A job's failurePolicy, empty if the defaults mean the same.

    `backoff` is a limit with its path. Without `--max-restarts` torchrun restarts nothing.
    """
    policy: Manifest = {}
    backoff_path, backoff_limit = backoff
    launch, max_restarts = pods.launch, pods.max_restarts or 0
    allowed = max(backoff_limit or 0, max_restarts)
    if restart_policy == "Never":
        policy["maxFailures"] = max_restarts
    elif allowed > DEFAULT_MAX_FAILURES:
        policy["maxFailures"] = min(allowed, MAX_FAILURES)
    if (number := policy.get("maxFailures", 0)) > DEFAULT_MAX_FAILURES:
        restarts_path = restarts_path or f"{pods.path}, --max-restarts"
        remarks.add(
            restarts_path if number <= max_restarts else backoff_path,
            f"becomes failurePolicy.maxFailures: {number}. Here lost pods and nodes "
            "do not count, and progress resets the count: the default of "
            f"{DEFAULT_MAX_FAILURES} is usually enough",
        )
    if backoff_limit is not None:
        policy["backoffLimit"] = backoff_limit
    match restart_policy:
        case "Never":
            policy["onPodLoss"] = "FailJob"
            remarks.add(
                path,
                "Never failed the job with the first pod that failed, and so does failurePolicy. "
                "Remove onPodLoss to replace lost pods",
            )
        case "ExitCode":
            codes = {"operator": "In", "values": [*range(1, PERMANENT + 1)]}
            policy["rules"] = [{"action": "FailJob", "onExitCodes": codes}]
            text = f"exit codes from 1 to {PERMANENT} fail the job, by a rule of failurePolicy"
            remarks.add(path, text)
            say_exit_codes(path, launch, remarks)
        case "Always":
            remarks.add(
                path,
                "Always also restarted workers that had succeeded. Here a worker that exits with 0 "
                "is done",
            )
    unlimited = backoff_limit is None and "maxFailures" not in policy
    if restart_policy in ("OnFailure", "Always") and unlimited:
        remarks.add(
            path,
            f"{restart_policy} restarted failed pods without a limit. This job fails after "
            f"{DEFAULT_MAX_FAILURES} failures in a row without progress in between: set "
            "failurePolicy.maxFailures to allow more",
        )
    return policy


def say_exit_codes(path: str, launch: Launch, remarks: Remarks) -> None:
    if launch.command:
        text = (
            "the rules see the exit code of the `command`: torchrun in it does not report its "
            "script's"
        )
        remarks.add(path, text)
    elif launch.by == "torchrun":
        text = (
            "torchrun exited with 1 whatever its script did; the agent reports the script's own "
            "exit code"
        )
        remarks.add(path, text)


def failure_rules(
    path: str, rules: Sequence[Mapping[str, Any]], container: object, remarks: Remarks
) -> list[Manifest]:
    """The podFailurePolicy of a Job, as rules of a failurePolicy, which come after it."""
    migrated = [
        _rule(f"{path}[{place}]", rule, container, remarks) for place, rule in enumerate(rules)
    ]
    return [rule for rule in migrated if rule is not None]


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
        return {"action": action, "onPodConditions": list(rule.get("onPodConditions") or ())}
    if codes.get("containerName") not in (None, container):
        other = codes["containerName"]
        remarks.drop(path, f"exit codes are those of the training process, not of {other}")
        return None
    values, operator = [int(value) for value in codes.get("values") or ()], codes.get("operator")
    allowed = [value for value in values if 1 <= value <= 255]
    if len(allowed) < len(values):
        remarks.add(
            f"{path}.onExitCodes.values",
            "only those from 1 to 255 are kept: no process ends with another, and 0 is no failure",
        )
    if not allowed and operator == "NotIn":
        operator, allowed = "In", [*range(1, 256)]
    if not allowed:
        return None
    return {"action": action, "onExitCodes": {"operator": operator, "values": allowed}}
