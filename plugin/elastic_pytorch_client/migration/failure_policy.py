"""Earlier rules of restarts, as a failurePolicy."""

from typing import Any

from elastic_pytorch_client.migration.launch import Launch
from elastic_pytorch_client.migration.remarks import Remarks

Manifest = dict[str, Any]

DEFAULT_MAX_FAILURES = 3
MAX_FAILURES = 1000
PERMANENT = 127  # the last exit code that ExitCode does not retry
AGENT_REPORTS = (
    "torchrun exited with 1 whatever its script did; the agent reports the script's own exit code"
)


def failure_policy(
    path: str,
    number_path: str,
    restart_policy: str,
    *,
    backoff_limit: int | None,
    max_restarts: int | None,
    launch: Launch,
    remarks: Remarks,
) -> Manifest:
    """A job's failurePolicy, empty if the defaults mean the same.

    Without `max_restarts` torchrun restarts nothing.
    """
    policy: Manifest = {}
    allowed = max(backoff_limit or 0, max_restarts or 0)
    if restart_policy == "Never":
        policy["maxFailures"] = min(max_restarts or 0, MAX_FAILURES)
    elif allowed > DEFAULT_MAX_FAILURES:
        policy["maxFailures"] = min(allowed, MAX_FAILURES)
    if policy.get("maxFailures", 0) > DEFAULT_MAX_FAILURES:
        remarks.add(
            number_path,
            f"becomes failurePolicy.maxFailures: {policy['maxFailures']}. Here lost pods and nodes "
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
            if launch.by == "torchrun" and not launch.command:
                text += f". {AGENT_REPORTS}"
            elif launch.by == "torchrun":
                text += (
                    ". It does not match yet: torchrun in a `command` does not report its script's "
                    "exit code"
                )
            remarks.add(path, text)
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
