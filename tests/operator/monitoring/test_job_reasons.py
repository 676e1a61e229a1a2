import inspect
import re
from types import ModuleType
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.monitoring.job_reasons import (
    FAILURE_REASONS,
    WAIT_REASONS,
    failure_reason,
    impairment,
    wait_reason,
)
from elastic_pytorch_operator.planning import completion
from elastic_pytorch_operator.planning.reporting import quota_conditions
from elastic_pytorch_operator.planning.reporting import status as job_status


def status(type_: str, value: str, reason: Any, **fields: Any) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": value, "reason": reason}], **fields}


def waiting(reason: Any = "WaitingForWorkers", **fields: Any) -> dict[str, Any]:
    return status("Running", "False", reason, state="Pending", **fields)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "Other"),
        (waiting(), "WaitingForWorkers"),
        (waiting("BackingOff"), "BackingOff"),
        (waiting("WaitingForQuota", goodput={"activity": "WaitingForNodes"}), "WaitingForQuota"),
        (waiting(goodput={"activity": "WaitingForNodes"}), "WaitingForNodes"),
        (waiting(goodput={"activity": "Preparing"}), "Preparing"),
        (waiting(goodput={"activity": "Starting"}), "WaitingForWorkers"),
        (
            waiting(goodput={"activity": "WaitingForNodes"}, refusals=["quota"]),
            "RefusedByApiServer",
        ),
        (waiting("of a user's own"), "Other"),
        (waiting(["no text"]), "Other"),
    ],
)
def test_wait_has_a_reason_of_the_list(found: dict[str, Any], reason: str) -> None:
    assert wait_reason(found) == reason
    assert reason in WAIT_REASONS


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "Other"),
        (waiting("ScheduleTimeout"), "ScheduleTimeout"),
        (status("Degraded", "True", "WorkersMissing", state="Running"), "WorkersMissing"),
        (status("Degraded", "False", "AtWantedSize", state="Running"), ""),
        (status("Degraded", "Unknown", "WorkersUnheard", state="Running"), ""),
        (status("Suspended", "True", "JobSuspended", state="Suspended"), ""),
        (status("Complete", "True", "WorkersSucceeded", state="Complete"), ""),
        (status("Failed", "True", "PodLost", state="Failed"), ""),
    ],
)
def test_job_is_impaired_that_does_not_train_as_it_wants(
    found: dict[str, Any], reason: str
) -> None:
    assert impairment(found) == reason


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (status("Complete", "True", "WorkersSucceeded"), None),
        (status("Failed", "True", "CannotStart"), "CannotStart"),
        (status("Failed", "True", "of a user's own"), "Other"),
        (status("Failed", "True", {"no": "text"}), "Other"),
    ],
)
def test_failed_job_has_a_reason_of_the_list(found: dict[str, Any], reason: str | None) -> None:
    assert failure_reason(found) == reason


def named(pattern: str, module: ModuleType) -> set[str]:
    """The constants of `api.names` that follow a pattern in a module's source."""
    return {
        getattr(names, name)
        for name in re.findall(rf"{pattern}\s*names\.([A-Z_]+)", inspect.getsource(module))
    }


def test_every_reason_of_the_code_is_in_the_lists() -> None:
    failed = named(r"\bfail\(", completion)
    waits = named(r"Condition\(\s*names\.RUNNING,\s*False,", job_status)
    assert {names.POD_LOST, names.CANNOT_START} <= failed <= set(FAILURE_REASONS)
    assert {names.WAITING_FOR_WORKERS, names.BACKING_OFF} <= waits <= set(WAIT_REASONS)
    assert set(quota_conditions.WITHOUT_QUOTA) <= set(WAIT_REASONS)
