import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import Condition, Worker, view_job
from elastic_pytorch_client.views.status_view import show_status

from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import events_of, job_of, moment_of


def status(name: str) -> str:
    return text_of(show_status(job_of(name), events_of(name), moment_of(name)))


def changed(name: str, width: int = 120, **fields: Any) -> str:
    """What is shown of a recorded job with other fields, without its events."""
    return text_of(show_status(replace(job_of(name), **fields), [], moment_of(name)), width)


def test_a_job_that_trains() -> None:
    assert status("lost") == LOST.strip("\n")


def test_a_few_metrics_are_shown() -> None:
    job = job_of("lost")
    some, many = ({f"m{n}": n / 4 for n in range(count)} for count in (2, 6))

    def shown(metrics: dict[str, float]) -> str:
        return changed("lost", progress=replace(job.progress, metrics=metrics))

    assert "  loss 1.633 · m0 0 · m1 0.25 · 6.2 steps/s" in shown(some)
    assert "m3 0.75 · 2 more metrics · 6.2 steps/s" in shown(many)


def test_spares_are_counted_and_told_from_workers_that_wait() -> None:
    spare = Worker("char-lm-worker-3-nz26n", 3, None, "elastic-pytorch-worker2", "Spare")
    shown = changed("lost", spares=1, ready_spares=1, workers=(*job_of("lost").members, spare))
    assert "2 train, 3 wanted (1 to 4) · 1 of 1 spare ready · world size 2" in shown
    assert "spare    char-lm-worker-3-nz26n  elastic-pytorch-worker2  ○ Spare" in shown


def test_a_worker_of_a_job_that_has_ended_does_not_run() -> None:
    [condition, *_] = job_of("young").conditions
    shown = changed(
        "young", conditions=(replace(condition, type="Failed", true=True),), state="Failed"
    )
    assert "● Running" not in shown
    assert shown.count("○ Ended") == len(job_of("young").members)


def test_says_for_how_long_a_worker_has_been_preparing_or_saving() -> None:
    since = moment_of("lost") - timedelta(seconds=120)
    for state in ("Preparing", "Saving"):
        worker = Worker("new", 3, None, "", state, state_since=since)
        assert (
            f"{state} (2 min)\n"
            in changed("lost", workers=(*job_of("lost").members, worker)) + "\n"
        )


RESUMED = "Training resumed with 2 workers 1.0 s after WorkerLeaving; 9 steps repeated"
LOST = f"""
char-lm  team  ○ Resizing  for 1 min 7 s
  ━━━━━━━━━━━━━━━━━─────────────────────── 43%  step 341 of 800, about 1 min 14 s left
  loss 1.633 · 6.2 steps/s · checkpoint at step 340

Workers  2 train, 3 wanted (1 to 4) · world size 2 · round 2
├── rank 0   char-lm-worker-0-4jz6j  elastic-pytorch-worker3  ● Running  step 341
├── rank 1   char-lm-worker-2-w9n54  elastic-pytorch-worker   ● Running  step 341
└── waits    char-lm-worker-1-nz26n  elastic-pytorch-worker2  ○ Starting

Conditions
  ● Running   2 of 3 workers train                         57s
  ▲ Resizing  growing from 2 to 3 workers                   5s
  ▲ Degraded  trains with 2 of 3 workers; 1 pod: starting   5s

Rounds
  workers ████▆▆▆▆▆▆▆▆  3 to 2
  round   1   2

Timeline
  57s ago  FirstRound       Round 1, 0 -> 3 workers: 3 of 3 wanted workers are ready
   4s ago  WorkerLeaving    Round 2, 3 -> 2 workers: char-lm-worker-1-v7jk7 is being deleted
   4s ago  TrainingResumed  {RESUMED}
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("suspended", ["○ Suspended", "▲ Suspended", "spec.suspend is true: nothing runs", "none"]),
        (
            "failed",
            [
                "✗ Failed  after 12 s",
                "Last failure",
                "rank 1, exit code 1",
                "ValueError: told to fail at step 5",
            ],
        ),
        ("too-large", ["no node yet", "3 Insufficient cpu", "0 train, 2 wanted (1 to 2)"]),
        (
            "no-image",
            [
                "○ Pending",
                "registry.invalid/team/train:v1",
                "no events; Kubernetes keeps them for an hour",
            ],
        ),
    ],
)
def test_says_what_matters(name: str, lines: list[str]) -> None:
    shown = status(name)
    for line in lines:
        assert line in shown


def test_loss_and_speed_are_drawn_from_the_start_until_now() -> None:
    job = job_of("whole")
    first, *others = job.history
    samples = [
        HistoryEntry(first.at, loss=loss, steps_per_second=speed)
        for loss, speed in ((3.0, 4.0), (2.0, 2.0))
    ]
    progress = replace(job.progress, loss=1.0, steps_per_second=8.0)
    shown = changed("whole", history=(first, *samples), progress=progress)
    assert "  loss        ████▅▅▅▅▁▁▁▁  3 to 1\n  steps/s     ▅▅▅▅▃▃▃▃████  4 to 8\n" in shown
    assert "  workers ▆▆▆▆▆▆▆▆▆▆▆▆████  3 to 4\n  round   1" in shown
    odd = changed(
        "whole", history=(first, replace(samples[0], loss=math.nan), *others), progress=progress
    )
    assert "loss" not in odd.split("Rounds")[1]
    huge = [HistoryEntry(first.at, loss=loss) for loss in (1e308, -1e308)]
    unbounded = changed("whole", history=(first, *huge), progress=progress)
    assert "loss" not in unbounded.split("Rounds")[1], "their difference is no number"
    assert "Rounds" not in changed("whole", history=(first,))


def test_last_interruption_is_shown_with_its_slowest_phase() -> None:
    job = job_of("whole")
    assert job.last_interruption is not None
    known = replace(job.last_interruption, phases={"stop": 0.2, "firstStep": 0.97})
    said = (
        "training resumed 1.2 s after WorkerJoined; 3 steps repeated; "
        "the slowest phase was first step (1.0 s)"
    )
    assert said in changed("whole", history=(known,))
    assert "the slowest phase" not in changed("whole")


def test_failure_is_shown_with_its_process_its_node_and_its_time() -> None:
    job = job_of("failed")
    assert job.root_cause is not None
    known = replace(
        job.root_cause, pid=57, node="node-a", time=datetime(2026, 11, 21, 18, 1, 9, tzinfo=UTC)
    )
    shown = changed("failed", 200, root_cause=known)
    assert (
        "fails-worker-1-vrp6p, rank 1, process 57, on node-a, at 2026-11-21 18:01:09 UTC, "
        "exit code 1" in shown
    )
    assert "process 57, a hang\n" in changed(
        "failed", root_cause=replace(known, exit_code=None, node="", time=None)
    )


def test_conditions_that_are_false_are_left_out_unless_they_say_why_nothing_trains() -> None:
    told = status("whole").partition("Conditions")[2].partition("Timeline")[0].split()
    assert "Running" in told
    assert not {"Resizing", "Degraded", "Suspended", "Complete", "Failed"} & set(told)
    assert "○ not Running" in status("too-large")


def with_condition(name: str, type_: str, **fields: Any) -> tuple[Condition, ...]:
    """The conditions of a recorded job, of which one is not true."""
    return tuple(
        replace(c, true=False, **fields) if c.type == type_ else c for c in job_of(name).conditions
    )


def test_condition_that_is_unknown_is_told_as_that() -> None:
    conditions = with_condition(
        "whole", "Running", unknown=True, message="2 workers have not been heard"
    )
    assert "○ perhaps Running  2 workers have not been heard" in changed(
        "whole", conditions=conditions
    )


def test_a_suspension_that_waits_for_workers_says_so() -> None:
    conditions = with_condition(
        "suspended", "Suspended", reason="Suspending", message="2 workers are stopping"
    )
    assert "○ not yet Suspended  2 workers are stopping" in changed(
        "suspended", conditions=conditions
    )


def test_only_the_newest_events() -> None:
    events = events_of("whole")
    many = [*events[:1] * (13 - len(events)), *events]
    shown = text_of(show_status(job_of("whole"), many, moment_of("whole")))
    assert "1 earlier events" in shown
    assert shown.count(" ago  ") == 12


def test_of_many_workers_those_that_are_unwell_come_first() -> None:
    workers = tuple(Worker(f"job-worker-{i}-aaaaa", i, i, "node", "Running") for i in range(1000))
    lost = replace(workers[700], rank=None, state="Lost")
    shown = changed("young", workers=(*workers[:700], lost, *workers[701:]))
    assert "job-worker-700-aaaaa" in shown
    assert "and 968 more Running" in shown
    assert len(shown.splitlines()) < 52


@pytest.mark.parametrize(
    "manifest",
    [{"metadata": {"name": "new"}}, {"metadata": {"name": "new"}, "spec": {}, "status": {}}],
)
def test_a_job_that_the_operator_has_not_seen(manifest: dict[str, object]) -> None:
    shown = text_of(show_status(view_job(manifest), [], moment_of("young")))
    assert "new  default  ○ Pending" in shown
    assert "none" in shown


def test_stock_torchrun_has_ranks_that_the_operator_does_not_know() -> None:
    workers = tuple(replace(worker, rank=None) for worker in job_of("young").workers)
    shown = changed("young", backend="c10d", workers=workers)
    assert "torchrun (c10d) assigns the ranks" in shown
    assert "3 train" in shown
