import pytest
from elastic_pytorch_client.views.list_view import show_list
from elastic_pytorch_client.views.widgets import progress_bar

from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import job_of, moment_of

NAMES = ("lost", "failed", "no-image", "suspended", "too-large")


def test_list_has_a_line_each_however_long_the_trouble() -> None:
    shown = text_of(
        show_list([job_of(name) for name in NAMES], moment_of("lost"), namespaces=True), 150
    )
    lines = shown.splitlines()
    assert all(len(line) <= 150 for line in lines)
    names = "char-lm fails no-image sleeper too-large"
    assert " ".join(line.split(maxsplit=2)[1] for line in lines[1:6]) == names
    troubles = "char-lm fails no-image too-large"
    assert " ".join(line.partition(":")[0] for line in lines[6:]) == troubles
    assert "341/800 (43%)" in lines[1]
    assert "told to fail at step 5" in text_of(
        show_list([job_of("failed")], moment_of("lost"), namespaces=False), 250
    )


def test_a_suspended_job_is_not_short_of_workers() -> None:
    jobs = [job_of("suspended")]
    listed = text_of(show_list(jobs, moment_of("suspended"), namespaces=False), 150).splitlines()[1]
    assert listed.split()[:4] == ["sleeper", "○", "Suspended", "-"]


@pytest.mark.parametrize(
    ("fraction", "bar"),
    [(0, "────"), (0.5, "━━──"), (0.6, "━━╸─"), (1, "━━━━"), (7, "━━━━"), (-1, "────")],
)
def test_progress_bar(fraction: float, bar: str) -> None:
    assert progress_bar(fraction, 4).plain == bar
