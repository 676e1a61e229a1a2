"""Lists, the live screen, sparklines and progress bars."""

from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.job_view import Progress
from elastic_pytorch_client.views.list_view import show_list
from elastic_pytorch_client.views.top_view import SparklineSamples, show_top
from elastic_pytorch_client.views.widgets import progress_bar, sparkline

from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import job_of, moment_of

NAMES = ("lost", "failed", "no-image", "suspended", "too-large")


def test_list_has_a_line_each_however_long_the_trouble() -> None:
    shown = text_of(show_list([job_of(name) for name in NAMES], moment_of("lost"), namespaces=True), 150)
    lines = shown.splitlines()
    assert len(lines) == 1 + len(NAMES)
    assert lines[0].split() == [
        *["NAMESPACE", "NAME", "STATE", "WORKERS", "WORLD", "STEP", "LOSS", "GOODPUT", "INTERRUPTIONS", "AGE", "NOTE"]
    ]
    assert "341/800 (43%)" in lines[1]
    assert "told to fail at step 5" in text_of(show_list([job_of("failed")], moment_of("lost"), namespaces=False), 250)


def test_top_shows_who_trains_first() -> None:
    jobs = [job_of(name) for name in NAMES]
    seen = SparklineSamples()
    for moment in ("young", "lost"):
        seen.take(job_of(moment))
    shown = text_of(show_top(jobs, {jobs[0].uid: seen}, moment_of("lost"), namespaces=False, trouble="no answer"), 150)
    headline, _, _, first, *_ = shown.splitlines()
    assert headline.startswith("5 jobs, 1 training with 2 processes")
    assert headline.endswith("no answer")
    assert first.startswith("char-lm    ○ Resizing   ■■· 2/3  ━━━━━━────────  43%")
    assert "1.633  █▁" in first
    assert "1, last in 1.0 s" in first


def test_top_has_a_column_of_metrics_if_a_job_reports_some() -> None:
    job, other = job_of("lost"), job_of("suspended")
    measured = replace(job, progress=replace(job.progress, metrics={"accuracy": 0.93}))
    titles, first = text_of(show_top([measured, other], {}, moment_of("lost"), namespaces=False), 170).splitlines()[2:4]
    assert titles.rstrip().endswith("METRICS")
    assert first.rstrip().endswith("accuracy 0.93")
    assert "METRICS" not in text_of(show_top([job, other], {}, moment_of("lost"), namespaces=False), 170)


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
