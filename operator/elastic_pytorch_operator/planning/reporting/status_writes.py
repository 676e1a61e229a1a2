"""When a job's status is written: what differs a little, or often, may wait."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

from elastic_pytorch_operator.model.actions import PatchStatus
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.operator_state import FIELD
from elastic_pytorch_operator.model.status_changes import (
    FOLLOWING,
    GOODPUT,
    HISTORY,
    SLOW_FIELDS,
    differ,
    says_more,
)
from elastic_pytorch_operator.planning.reporting.goodput import Account
from elastic_pytorch_operator.planning.reporting.history import add_sample
from elastic_pytorch_operator.spec.job import Job

# Changes of these, and of the words of conditions, are written once a second at most, as a thousand
# pods change them a thousand times.
DETAILS = ("replicas", "readyReplicas", "readySpares", "workers", "unlistedWorkers", FIELD)
DETAILS_WRITE_SECONDS = 1.0
PROGRESS_WRITE_SECONDS = 5.0
# Of all jobs together: the API server has other clients, and keeps each version for minutes.
PROGRESS_WRITES_PER_SECOND = 10
SAME_WRITE_SECONDS = 30.0


def changes_details_only(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if differ(old, new, (*SLOW_FIELDS, *FOLLOWING, *DETAILS, "conditions")):
        return False
    before, after = (
        {
            (c.get("type"), c.get("status"), c.get("reason"), c.get("observedGeneration"))
            for c in status.get("conditions") or ()
        }
        for status in (old, new)
    )
    return before == after


def next_progress_write(job_uid: str, after: float, reporting_jobs: int) -> float:
    """Monotonic seconds; each job has its own moments, by its UID, which spreads the writes."""
    seconds = max(PROGRESS_WRITE_SECONDS, reporting_jobs / PROGRESS_WRITES_PER_SECOND)
    offset = crc32(job_uid.encode()) / 2**32 * seconds
    return after + seconds - (after - offset) % seconds


def write_status_at(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    written: Mapping[str, Any] | None,
    written_at: float,
    now: float,
    progress_at: float,
) -> float | None:
    """When to write a status, monotonic seconds; None: there is no need.

    Args:
        written: by this operator. The API server may have stored something else: an older resource
            definition drops fields, and what is no Unicode is replaced.
    """
    times = []
    if says_more(old, new):
        if written is not None and not says_more(written, new):
            times.append(written_at + SAME_WRITE_SECONDS)
        elif written is not None and changes_details_only(old, new):
            times.append(max(now, written_at + DETAILS_WRITE_SECONDS))
        else:
            times.append(now)
    if any(old.get(name) != new.get(name) for name in SLOW_FIELDS):
        times.append(progress_at)
    return min(times, default=None)


class Written(NamedTuple):
    status: Mapping[str, Any] | None = None  # None: nothing yet
    at: float = 0.0


def status_write(
    job: Job, status: dict[str, Any], account: Account, observed: Observed, written: Written
) -> tuple[list[PatchStatus], float | None]:
    progress_at = next_progress_write(job.uid, written.at, observed.reporting_jobs)
    due = write_status_at(job.status, status, *written, observed.now, progress_at)
    if due is None or due > observed.now:
        return [], due
    progress, before = status.get("progress") or {}, job.status.get("progress") or {}
    if status.get("worldSize") and progress.get("step") != before.get("step"):
        history = add_sample(status.get(HISTORY) or (), progress, observed.time)
        status = status | ({HISTORY: history} if history else {})
    return [PatchStatus(status | {GOODPUT: account.as_status(observed.time)})], None
