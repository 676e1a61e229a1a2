"""Why jobs wait, are impaired and fail, in fixed words for metrics."""

from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended, is_true
from elastic_pytorch_operator.model.status_changes import GOODPUT
from elastic_pytorch_operator.planning.reporting.goodput import Activity

PENDING = "Pending"
OTHER = "Other"  # a status that someone else has written, or none yet

WAIT_REASONS = (
    names.WAITING_FOR_WORKERS,
    names.REFUSED,
    Activity.WAITING_FOR_NODES.value,
    Activity.PREPARING.value,
    names.SCHEDULE_TIMEOUT,
    names.BACKING_OFF,
    names.GROUP_RESTARTED,
    names.QUOTA_REQUESTED,
    names.WAITING_FOR_QUOTA,
    names.EVICTED,
    names.LEAVING_QUEUE,
    names.KUEUE_DISABLED,
    names.TEMPLATE_MISSING,
    names.INVALID_SPEC,
    OTHER,
)
FAILURE_REASONS = (
    names.TOO_MANY_FAILURES,
    names.BACKOFF_LIMIT_EXCEEDED,
    names.FAILURE_POLICY_RULE,
    names.POD_LOST,
    names.DEADLINE_EXCEEDED,
    names.LAST_CHECKPOINT_NOT_WRITTEN,
    names.CANNOT_START,
    names.NEVER_JOINED,
    names.INVALID_TEMPLATE,
    OTHER,
)


def state_of(status: Mapping[str, Any]) -> str:
    return str(status.get("state") or PENDING)


def wait_reason(status: Mapping[str, Any]) -> str:
    """The reason of a Pending job's condition Running, or a more precise one."""
    reason = find_condition(status, names.RUNNING).get("reason")
    if reason == names.WAITING_FOR_WORKERS:
        if status.get("refusals"):
            return names.REFUSED
        activity = (status.get(GOODPUT) or {}).get("activity")
        precise = activity in (Activity.WAITING_FOR_NODES, Activity.PREPARING)
        return str(activity if precise else reason)
    return reason if reason in WAIT_REASONS else OTHER


def impairment(status: Mapping[str, Any]) -> str:
    """Why a job that should train does not, or does with less than it wants; empty: it is well."""
    if has_ended(status) or status.get("state") in (names.SUSPENDING, names.SUSPENDED):
        return ""
    if state_of(status) == PENDING:
        return wait_reason(status)
    degraded = find_condition(status, names.DEGRADED)
    return str(degraded.get("reason") or OTHER) if degraded.get("status") == "True" else ""


def failure_reason(status: Mapping[str, Any]) -> str | None:
    if is_true(status, names.COMPLETE):
        return None
    reason = find_condition(status, names.FAILED).get("reason")
    return reason if reason in FAILURE_REASONS else OTHER
