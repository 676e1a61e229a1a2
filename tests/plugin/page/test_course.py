"""The course of a job on one axis of time."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from elastic_pytorch_client.page.course import course_of, group_sizes
from elastic_pytorch_client.page.history import GroupSize, History
from elastic_pytorch_client.reading.interruption_phases import Interruption
from elastic_pytorch_client.reading.timeline import JobEvent

from tests.plugin.recorded_cluster import events_of, job_of, moment_of

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


def before(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def test_a_recorded_course() -> None:
    job, now, history = job_of("lost"), moment_of("lost"), History()
    history.take(job, now)
    found = course_of(job, events_of("lost"), history, now)
    assert [(size["workers"], size["round"]) for size in found["sizes"]] == [(3, 1), (2, 2)]
    assert found["end"] == now.timestamp()
    assert found["begin"] == min(
        event["at"] for event in found["events"] + [{"at": job.started.timestamp() if job.started else 0}]
    )
    assert [lane["changes"][0][1:] for lane in found["lanes"]] == [
        ["Running", "good"],
        ["Starting", "busy"],
        ["Running", "good"],
    ]
    [interruption] = found["interruptions"]
    assert (interruption["cause"], interruption["seconds"], interruption["ended"]) == ("WorkerLeaving", 1.02, None)


def test_what_was_seen_counts_from_when_it_was_seen() -> None:
    def declared(minutes: float, round_: int, workers: int) -> JobEvent:
        return JobEvent(before(minutes), "WorkerJoined", "", round=round_, workers=workers)

    seen = [GroupSize(before(20), 4, 3), GroupSize(before(10), 0, 3), GroupSize(before(9), 2, 4)]
    history = History()
    history.sizes.extend(seen)
    told = [declared(40, 1, 2), declared(30, 3, 4), declared(9.1, 4, 2), JobEvent(before(5), "TrainingResumed", "", workers=2)]
    assert group_sizes(told, history) == [GroupSize(before(40), 2, 1), GroupSize(before(30), 4, 3), *seen[1:]]
    assert group_sizes(told[:1], History()) == [GroupSize(before(40), 2, 1)]


def test_the_axis_begins_with_what_is_known_and_ends_with_the_job() -> None:
    job = replace(job_of("failed"), started=before(60), completed=before(30), recent_interruptions=())
    found = course_of(job, [JobEvent(before(45), "JobFailed", "")], History(), NOW)
    assert (found["begin"], found["end"]) == (before(45).timestamp(), before(30).timestamp())


def test_condensed_interruptions_have_no_place_on_the_axis() -> None:
    condensed = Interruption("WorkerLost", 9e6, 12, ended=before(59), count=20, before=3, after=2)
    job = replace(job_of("whole"), started=before(60), completed=None, recent_interruptions=(condensed,))
    found = course_of(job, [], History(), NOW)
    assert found["begin"] == before(60).timestamp()
    [told] = found["interruptions"]
    assert (told["count"], told["before"], told["after"], told["stepsLost"]) == (20, 3, 2, 12)


def test_what_a_tenant_writes_into_events_harms_nothing() -> None:
    ages = JobEvent(NOW + timedelta(days=3000), "Odd", "<b>", round=10**17, workers=10**17)
    cost = Interruption("WorkerLost", float("inf"), None, {"stop": float("nan"), "wait": 1.5}, ended=before(1))
    found = course_of(replace(job_of("whole"), recent_interruptions=(cost,)), [ages], History(), NOW)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["events"], found["end"]) == ([], NOW.timestamp())
    assert found["interruptions"][0]["phases"] == [["wait", 1.5]]
    assert found["interruptions"][0]["seconds"] == 0.0
