"""Lists, the live screen, sparklines and plots."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from elastic_pytorch_client.reading.job_view import Progress
from elastic_pytorch_client.reading.series import Sample, Series, gather
from elastic_pytorch_client.views.canvas import Canvas
from elastic_pytorch_client.views.list_view import show_list
from elastic_pytorch_client.views.plot_view import draw_plot
from elastic_pytorch_client.views.progress_bar import progress_bar
from elastic_pytorch_client.views.sparkline import sparkline
from elastic_pytorch_client.views.top_view import SparklineSamples, show_top
from rich.text import Text

from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import events_of, job_of, moment_of

NAMES = ("lost", "failed", "no-image", "suspended", "too-large")


def test_list_has_a_line_each_however_long_the_trouble() -> None:
    shown = text_of(show_list([job_of(name) for name in NAMES], moment_of("lost"), namespaces=True), 150)
    lines = shown.splitlines()
    assert len(lines) == 1 + len(NAMES)
    assert lines[0].split() == [
        *["NAMESPACE", "NAME", "STATE", "WORKERS", "WORLD", "STEP", "LOSS", "RECOVERIES", "AGE", "NOTE"]
    ]
    assert "341/800 (43%)" in lines[1]
    assert "told to fail at step 5" in text_of(show_list([job_of("failed")], moment_of("lost"), namespaces=False), 250)


def test_top_shows_who_trains_first() -> None:
    jobs = [job_of(name) for name in NAMES]
    sparklines = {jobs[0].uid: SparklineSamples.from_series(gather(jobs[0], []))}
    shown = text_of(show_top(jobs, sparklines, moment_of("lost"), namespaces=False, trouble="no answer"), 150)
    headline, _, _, first, *_ = shown.splitlines()
    assert headline.startswith("5 jobs, 1 training with 2 processes")
    assert headline.endswith("no answer")
    assert first.startswith("char-lm    ○ Resizing   ■■· 2/3  ━━━━━━────────  43%")
    assert "█▆▄▃" in first
    assert "1, last in 1.0 s" in first


def test_a_suspended_job_is_not_short_of_workers() -> None:
    jobs = [job_of("suspended")]
    row = text_of(show_top(jobs, {}, moment_of("suspended"), namespaces=False), 150).splitlines()[3]
    assert row.split()[:4] == ["sleeper", "○", "Suspended", "-"]
    listed = text_of(show_list(jobs, moment_of("suspended"), namespaces=False), 150).splitlines()[1]
    assert listed.split()[:4] == ["sleeper", "○", "Suspended", "-"]


def test_gauges_take_what_is_news() -> None:
    job = job_of("young")
    sparklines = SparklineSamples()
    sparklines.take(job)
    sparklines.take(job)
    sparklines.take(replace(job, progress=Progress(step=90, loss=2.5, steps_per_second=8)))
    assert list(sparklines.losses) == [job.progress.loss, 2.5]
    assert list(sparklines.speeds)[-1] == 8


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 5, ""),
        ([1, 1, 1], 5, "▄▄▄"),
        ([0, 7], 5, "▁█"),
        ([0, 0, 7, 7], 2, "▁█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
    ],
)
def test_sparkline(values: list[float], width: int, line: str) -> None:
    assert sparkline(values, width) == line


@pytest.mark.parametrize(
    ("fraction", "bar"), [(0, "────"), (0.5, "━━──"), (0.6, "━━╸─"), (1, "━━━━"), (7, "━━━━"), (-1, "────")]
)
def test_progress_bar(fraction: float, bar: str) -> None:
    assert progress_bar(fraction, 4).plain == bar


def test_canvas_draws_dots_and_stairs() -> None:
    canvas = Canvas(2, 1)
    canvas.dot(0, 0)
    canvas.dot(3, 3)
    canvas.dot(99, -1)
    assert canvas.lines() == ["⡀⠈"]
    stairs = Canvas(2, 1)
    stairs.curve([(0, 0), (1, 1)], steps=True)
    assert stairs.lines() == ["⣀⣸"]


def test_plot_shows_loss_world_and_recoveries() -> None:
    series = gather(job_of("resumed"), events_of("resumed"), now=moment_of("resumed"))
    shown = draw_plot(job_of("resumed"), series, 100).plain
    assert "loss  4.428 → 1.198" in shown
    assert "world size" in shown
    assert shown.count("▲") == 2 * len(series.recoveries) == 8
    assert "▲ at 53 s: trained again in 1.0 s after WorkerLeaving" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_plot_shows_when_the_job_was_suspended() -> None:
    series = gather(job_of("resumed"), events_of("resumed"), now=moment_of("resumed"))
    [(since, until)] = series.suspensions
    assert (since.second, until.second) == (49, 59)
    [line] = [line for line in draw_plot(job_of("resumed"), series, 100).plain.splitlines() if "suspended" in line]
    assert line.endswith("─")
    assert 5 <= line.count("─") <= 12


def test_plot_of_little() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    job = job_of("young")
    assert "nothing to plot" in draw_plot(job, Series(), 80).plain
    assert "nothing to plot" in draw_plot(job, Series((Sample(begin, 1, 2.0),)), 80).plain
    worlds = Series((Sample(begin, world=2), Sample(begin + timedelta(seconds=9), world=3)))
    assert "reports no loss" in draw_plot(job, worlds, 80).plain
    flat = Series((Sample(begin, 1, 2.0), Sample(begin + timedelta(seconds=9), 2, 2.0)))
    assert isinstance(draw_plot(job, flat, 10), Text)
