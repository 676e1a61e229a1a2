"""How a training went, put together from what is left of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.series import Series, gather, samples_of_log
from elastic_pytorch_client.reading.timeline import read_events
from elastic_pytorch_client.views.figure import save_figure

from tests.plugin.recorded_cluster import events_of, job_of, moment_of, recorded


def test_events_tell_worlds_and_recoveries_to_the_second() -> None:
    series = gather(job_of("resumed"), events_of("resumed"), now=moment_of("resumed"))
    sizes = [world for _, world in series.worlds]
    changes = [size for before, size in zip([None, *sizes], sizes, strict=False) if size != before]
    assert changes == [3, 2, 3, 4, 2, 0, 2]
    assert [(r.cause, r.seconds) for r in series.recoveries][:2] == [("WorkerLeaving", 1.0), ("WorkerJoined", 0.6)]
    assert series.losses[0][1] == 4.428
    assert all(earlier[0] <= later[0] for earlier, later in zip(series.losses, series.losses[1:], strict=False))


def test_without_events_the_history_tells() -> None:
    series = gather(job_of("resumed"), [])
    assert len(series.recoveries) == 4
    assert {world for _, world in series.worlds} == {0, 2, 3, 4}
    assert len(series.losses) == 23


def test_of_the_time_before_the_oldest_event_the_history_tells() -> None:
    late = events_of("resumed")[6:]
    series = gather(job_of("resumed"), late)
    assert len(series.recoveries) == 4
    assert next(world for at, world in series.worlds if at < late[0].at) == 3


def test_a_job_without_either_has_nothing() -> None:
    assert gather(job_of("too-large"), []) == Series()


def test_a_history_that_is_garbage_is_none() -> None:
    job = replace(job_of("young"), history={"since": "then", "intervalSeconds": "x", "steps": "1 2"})
    assert gather(job, []).losses == []


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        ("step 12/800  loss 3.212  workers 3  17 ms/step", 12, 3.212),
        ("Step: 12, Loss: 1e-3", 12, 0.001),
        ("epoch=1 global_step=400 train_loss=0.25", 400, 0.25),
        ('{"step": 7, "loss": 2.5}', 7, 2.5),
        ("STEP 3 world=2", None, None),
        ("the loss of a worker at step", None, None),
    ],
)
def test_log_lines_that_name_a_step_and_a_loss(line: str, step: int | None, loss: float | None) -> None:
    found = samples_of_log([f"2026-01-01T00:00:01.123456789Z {line}"])
    assert [(s.step, s.loss) for s in found] == ([(step, loss)] if step else [])


def test_log_lines_are_finer_than_the_history() -> None:
    begin = datetime(2026, 11, 21, 18, 1, 30, tzinfo=UTC)
    lines = [f"{(begin + timedelta(seconds=i / 10)).isoformat()} step {i} loss {9 - i / 100}" for i in range(50)]
    assert len(gather(job_of("young"), [], lines).losses) == len(gather(job_of("young"), []).losses) + 50


def test_speeds_leave_out_steps_done_again() -> None:
    assert all(speed >= 0 for _, speed in gather(job_of("resumed"), []).speeds)


def test_events_of_an_earlier_job_of_the_same_name_are_another_story() -> None:
    events = [e for e in recorded("young")["events"] if e["involvedObject"]["kind"] == "ElasticPyTorchJob"]
    assert read_events(events, "another-uid") == []
    assert [event.round for event in read_events(events)] == [1]


def test_events_know_what_their_notes_say() -> None:
    by_reason = {event.reason: event for event in events_of("resumed")}
    assert (by_reason["ScaledDown"].round, by_reason["ScaledDown"].workers) == (5, 2)
    assert by_reason["ScaledDown"].cause.startswith("char-lm-worker-2-w9n54 is no longer wanted")
    again = by_reason["TrainingResumed"]
    assert (again.workers, again.seconds, again.cause, again.steps_lost) == (2, 1.9, "ScaledDown", 13)


def test_pictures(tmp_path: Path) -> None:
    job = job_of("resumed")
    series = gather(job, events_of("resumed"), now=moment_of("resumed"))
    save_figure(job, series, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(EpjError, match="cannot write"):
        save_figure(job, series, tmp_path / "nowhere" / "plot.png")
    with pytest.raises(EpjError, match="cannot write"):
        save_figure(job, series, tmp_path / "plot.what")
    with pytest.raises(EpjError, match="there is nothing to plot"):
        save_figure(job, Series(), tmp_path / "plot.png")
