"""The timeline of a job."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from elastic_pytorch_client.page.timeline import MAX_EVENTS, group_sizes, timeline_of
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import Condition, Progress
from elastic_pytorch_client.reading.timeline import JobEvent

from tests.plugin.recorded_cluster import events_of, job_of, moment_of
from tests.situations import situations

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
WHOLE = job_of("whole")


def before(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def change(
    minutes: float, round_: int, workers: int, seconds: float | None = None, count: int = 1
) -> HistoryEntry:
    return HistoryEntry(
        before(minutes), round_, "WorkerJoined", workers=workers, seconds=seconds, count=count
    )


def sample(minutes: float, loss: float | None, speed: float | None = None) -> HistoryEntry:
    return HistoryEntry(before(minutes), loss=loss, steps_per_second=speed)


def test_a_recorded_timeline() -> None:
    job, now = job_of("lost"), moment_of("lost")
    found = timeline_of(job, events_of("lost"), now)
    assert [(size["workers"], size["round"]) for size in found["sizes"]] == [(3, 1), (0, 2), (2, 2)]
    assert found["end"] == now.timestamp()
    assert job.started is not None
    assert found["begin"] == job.started.timestamp()
    [interruption] = found["interruptions"]
    facts = ("cause", "seconds", "before", "after")
    assert [interruption[name] for name in facts] == ["WorkerLeaving", 1.02, 3, 2]


@situations(
    "history, sizes",
    {
        "no group has formed": ((), []),
        "a sample is no change": ((change(9, 1, 3), sample(8, 2.5)), [(9, 3, 1)]),
        "it stood still": (
            (change(9, 1, 3), change(5, 2, 4, 60.0)),
            [(9, 3, 1), (6, 0, 2), (5, 4, 2)],
        ),
        "several became one": (
            (change(9, 1, 3), change(5, 7, 4, 6e9, count=5)),
            [(9, 3, 1), (5, 4, 7)],
        ),
        "when is not known": ((HistoryEntry(None, 1, "WorkerLost", workers=3),), []),
    },
)
def test_sizes_of_the_group(
    history: tuple[HistoryEntry, ...], sizes: list[tuple[float, int, int]]
) -> None:
    found = group_sizes(replace(WHOLE, history=history))
    assert [(each["at"], each["workers"], each["round"]) for each in found] == [
        (before(minutes).timestamp(), workers, round_) for minutes, workers, round_ in sizes
    ]


def test_a_group_that_stands_still_now_has_no_size() -> None:
    running = Condition("Running", true=False, reason="", message="", since=before(2))
    job = replace(WHOLE, history=(change(9, 1, 3),), world=0, round=2, conditions=(running,))
    assert group_sizes(job)[1:] == [{"at": before(2).timestamp(), "workers": 0, "round": 2}]


def test_loss_and_speed_run_until_now() -> None:
    history = (
        replace(change(9, 1, 3), loss=3.0),
        sample(8, 2.5, 4.0),
        sample(7, float("nan"), None),
    )
    job = replace(WHOLE, history=history, progress=Progress(loss=2.0, steps_per_second=5.0))
    found = timeline_of(job, [], NOW)
    assert found["losses"] == [
        [before(9).timestamp(), 3.0],
        [before(8).timestamp(), 2.5],
        [NOW.timestamp(), 2.0],
    ]
    assert found["speeds"] == [[before(8).timestamp(), 4.0], [NOW.timestamp(), 5.0]]
    still = timeline_of(replace(job, world=0), [], NOW)
    assert still["speeds"] == [[before(8).timestamp(), 4.0]]


def test_the_axis_begins_with_what_is_known_and_ends_with_the_job() -> None:
    job = replace(job_of("failed"), started=before(60), completed=before(30), history=())
    found = timeline_of(job, [JobEvent(before(45), "JobFailed", "")], NOW)
    assert (found["begin"], found["end"]) == (before(45).timestamp(), before(30).timestamp())


def test_several_interruptions_in_one_entry() -> None:
    entry = HistoryEntry(
        before(59), 30, "WorkerLost", before=3, workers=2, seconds=9e6, steps_lost=12, count=20
    )
    found = timeline_of(
        replace(WHOLE, started=before(60), completed=None, history=(entry,)), [], NOW
    )
    assert found["begin"] == before(60).timestamp()
    [told] = found["interruptions"]
    assert (told["count"], told["before"], told["after"], told["stepsLost"]) == (20, 3, 2, 12)


def test_what_a_tenant_writes_into_events_harms_nothing() -> None:
    ages = JobEvent(NOW + timedelta(days=3000), "Odd", "<b>", round=10**17, workers=10**17)
    phases = {"stop": float("nan"), "wait": 1.5}
    cost = HistoryEntry(
        before(1),
        2,
        "WorkerLost",
        workers=2,
        seconds=float("inf"),
        phases=phases,
        loss=float("inf"),
    )
    found = timeline_of(replace(WHOLE, history=(cost,)), [ages], NOW)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["events"], found["end"]) == ([], NOW.timestamp())
    assert found["interruptions"][0]["phases"] == [["wait", 1.5]]
    assert found["interruptions"][0]["seconds"] == 0.0


def test_of_very_many_events_the_newest_are_drawn() -> None:
    events = [JobEvent(before(5000 - number), "Odd", str(number)) for number in range(4000)]
    notes = [event["note"] for event in timeline_of(WHOLE, events, NOW)["events"]]
    assert notes == [str(number) for number in range(4000 - MAX_EVENTS, 4000)]
