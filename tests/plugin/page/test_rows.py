"""A job's row on the page."""

import json
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_client.page.rows import blocks, describe_group, row_of, tone, trouble
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import JobView, Straggler, Worker

from tests.plugin.recorded_cluster import job_of


def row(job: JobView) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(row_of(job), allow_nan=False))
    return found


def test_a_job_that_grows() -> None:
    found = row(job_of("lost"))
    expected = {
        "name": "char-lm",
        "namespace": "team",
        "state": "Resizing",
        "tone": "busy",
        "workers": "2/3",
        "blocks": [["good", "Running"], ["busy", "Starting"], ["good", "Running"]],
        "step": 341,
        "total": 800,
        "secondsLeft": 74,
        "loss": "1.633",
        "losses": [1.633],
        "speed": "6.2",
        "interruption": "training resumed 1.0 s after WorkerLeaving; 9 steps repeated",
        "note": "trains with 2 of 3 workers; 1 pod: starting",
        "trouble": 4,
    }
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("failed", 5), ("lost", 4), ("no-image", 3), ("too-large", 3), ("whole", 0), ("suspended", 0)],
)
def test_trouble_of_recorded_jobs(name: str, expected: int) -> None:
    assert trouble(job_of(name)) == expected


def test_trouble_of_others() -> None:
    whole = job_of("whole")
    slow = Straggler(0, "w", "n", "1.4", "1")
    assert trouble(replace(whole, stragglers=(slow,))) == 2
    assert trouble(replace(whole, refusals=("no",))) == 4


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None])
def test_numbers_that_json_does_not_have(loss: float | None) -> None:
    job = job_of("whole")
    found = row(
        replace(job, progress=replace(job.progress, loss=loss, steps_per_second=float("nan")))
    )
    assert found["losses"] == []
    assert found["loss"] == ("" if loss is None else f"{loss}")


def test_blocks() -> None:
    job = replace(
        job_of("whole"),
        wanted=3,
        workers=(Worker("b", 1, 0, "", "Running"), Worker("a", 1, None, "", "Lost")),
    )
    assert blocks(job) == [["good", "Running"], ["none", "no pod yet"], ["none", "no pod yet"]]
    assert blocks(replace(job, wanted=200)) == []
    assert blocks(replace(job, unlisted={"Running": (2,)})) == []
    assert blocks(job_of("failed")) == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Running", "good"),
        ("Silent", "busy"),
        ("Lost", "bad"),
        ("Odd", "quiet"),
        ("Leaving", "quiet"),
    ],
)
def test_tones(state: str, expected: str) -> None:
    assert tone(state) == expected


def test_who_trains() -> None:
    assert describe_group(job_of("lost")) == "2 of 3 train, world size 2, round 2, 1 Starting"
    assert describe_group(job_of("failed")) == "the job has ended"
    assert describe_group(
        replace(job_of("lost"), backend="c10d", spares=2, ready_spares=1)
    ).endswith("1 of 2 spares ready, torchrun (c10d) assigns the ranks")


def test_losses_whose_sum_no_number_holds() -> None:
    history = tuple(HistoryEntry(loss=1e308) for _ in range(60))
    assert row(replace(job_of("whole"), history=history))["losses"] == [1.315]
