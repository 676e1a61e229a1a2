"""The page's data of one job, for JSON."""

from collections.abc import Iterable
from typing import Any

from elastic_pytorch_client.page.rows import describe_group, row_of, seconds_of, tone
from elastic_pytorch_client.page.timeline import timeline_of
from elastic_pytorch_client.reading.diagnosis import Evidence, diagnose
from elastic_pytorch_client.reading.job_view import JobView, Worker
from elastic_pytorch_client.reading.pods.workers import add_pods
from elastic_pytorch_client.reading.stragglers import Straggler, slowest_by_worker
from elastic_pytorch_client.reading.text import without_commands
from elastic_pytorch_client.worker_logs import Choice, Line


def details_of(job: JobView, evidence: Evidence) -> dict[str, Any]:
    whole, slow = add_pods(job, evidence.pods), slowest_by_worker(job.stragglers)
    diagnosis, cause, progress = diagnose(whole, evidence), job.root_cause, job.progress
    return {
        "row": row_of(job),
        "started": seconds_of(job.started),
        "completed": seconds_of(job.completed),
        "size": f"{job.minimum} to {job.maximum}" if job.elastic else "a fixed size",
        "group": describe_group(job),
        "metrics": progress.name_metrics(12),
        "checkpoint": progress.checkpoint_step,
        "why": {
            "well": diagnosis.well,
            "headline": diagnosis.headline,
            "findings": [{"what": each.what, "do": each.do} for each in diagnosis.findings],
        },
        "timeline": timeline_of(job, evidence.events, evidence.now),
        "workers": [_worker(worker, slow.get(worker.name)) for worker in Choice().of(whole)],
        "conditions": [
            {
                "type": condition.type,
                "status": "True" if condition.true else "Unknown" if condition.unknown else "False",
                "reason": condition.reason,
                "message": condition.message,
                "since": seconds_of(condition.since),
            }
            for condition in job.conditions
        ],
        "rootCause": None
        if cause is None
        else {
            "whereAndHow": cause.where_and_how,
            "message": plain(cause.message),
        },
    }


def log_of(lines: Iterable[Line]) -> list[dict[str, str]]:
    return [{"at": line.at, "text": plain(line.text)} for line in lines]


def plain(text: str) -> str:
    """A text without commands for a terminal; of an overwritten line, the last state."""
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return without_commands("\n".join(shown))


def _worker(worker: Worker, slow: Straggler | None) -> dict[str, Any]:
    return {
        "name": worker.name,
        "index": worker.index,
        "rank": worker.rank,
        "node": worker.node,
        "state": worker.state,
        "tone": tone(worker.state),
        "slowdown": slow.slowdown if slow is not None else "",
        "stateSince": seconds_of(worker.state_since),
    }
