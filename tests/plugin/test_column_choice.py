import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.job_view import JobView, Progress
from elastic_pytorch_client.views.job_table import choose_columns
from elastic_pytorch_client.views.list_view import note, show_list

from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import RecordedCluster, job_of, moment_of, recorded
from tests.situations import situations

SCREENS = (80, 100, 120)
NOW = moment_of("lost")
LONG = "x" * 61
REASON = "no node has room for a pod of this job, " * 8


def the_jobs(name: str, namespace: str = "team") -> list[JobView]:
    """One of each kind of trouble, and one that has everything to show."""
    told = Progress(
        step=341, total=800, loss=1.63, steps_per_second=9.1, metrics={"accuracy": 0.93}
    )
    jobs = [
        replace(job_of("lost"), progress=told),
        *map(job_of, ("failed", "suspended", "too-large")),
    ]
    told_long = tuple(
        replace(condition, message=REASON) if condition.type == "Running" else condition
        for condition in jobs[3].conditions
    )
    jobs[3] = replace(jobs[3], conditions=told_long)
    return [
        replace(job, name=f"{name}-{number}", namespace=f"{namespace}-{number}", uid=str(number))
        for number, job in enumerate(jobs)
    ]


def titles_of(shown: str) -> list[str]:
    return next(line for line in shown.splitlines() if "WORKERS" in line).split()


@situations(
    "room, kept",
    {
        "all of them": (100, [0, 1, 2, 3, 4]),
        "just so": (38, [0, 1, 2, 3, 4]),
        "without the least important one": (37, [0, 1, 3, 4]),
        "just so again": (29, [0, 1, 3, 4]),
        "without the next one": (28, [0, 1, 3]),
        "what is always there": (19, [0, 3]),
        "it stays where there is no room even for that": (5, [0, 3]),
    },
)
def test_columns_of_a_width(room: int, kept: list[int]) -> None:
    importance, widths = [0, 1, 3, 0, 2], [10, 6, 7, 4, 3]
    assert choose_columns(importance, widths, gap=2, room=room) == kept


@pytest.mark.parametrize("importance", [[0, 1, 2], [2, 1, 0], [0, 0, 0]])
def test_a_wider_screen_has_all_columns_of_a_narrow_one(importance: list[int]) -> None:
    chosen = [set(choose_columns(importance, [9, 5, 7], gap=3, room=room)) for room in range(40)]
    assert all(narrow <= wide for narrow, wide in itertools.pairwise(chosen))


@pytest.mark.parametrize("namespaces", [False, True])
@pytest.mark.parametrize("name", ["lm", "a-name-as-people-give-them", LONG])
@pytest.mark.parametrize("columns", SCREENS)
def test_names_states_and_workers_are_whole(columns: int, name: str, namespaces: bool) -> None:
    jobs = the_jobs(name, LONG if name == LONG else "team")
    lines = text_of(show_list(jobs, NOW, namespaces=namespaces), columns).splitlines()
    for job in jobs:
        [row] = [line for line in lines if job.name in line.split()]
        assert f"{job.name}:" in {line.split()[0] for line in lines} or not note(job)
        words = row.split()
        assert job.state in words
        assert not namespaces or words[0] == job.namespace
        assert "-" in words or f"{job.ready}/{job.wanted}" in words
        assert name == LONG or len(row) <= columns


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        (80, "NAME STATE WORKERS STEP GOODPUT AGE"),
        (100, "NAME STATE WORKERS WORLD STEP LOSS GOODPUT INTERRUPTIONS AGE"),
        (500, "NAME STATE WORKERS WORLD STEP LOSS GOODPUT INTERRUPTIONS AGE NOTE"),
    ],
)
def test_columns_of_list(columns: int, titles: str) -> None:
    shown = text_of(show_list(the_jobs("char-lm"), NOW, namespaces=False), columns)
    assert titles_of(shown) == titles.split()
    assert "no node has room" in shown


def test_the_most_important_columns_come_wide_or_not() -> None:
    jobs = the_jobs(LONG, LONG)
    titles = titles_of(text_of(show_list(jobs, NOW, namespaces=True, wide=True), 80))
    assert " ".join(titles) == (
        "NAMESPACE NAME STATE WORKERS WORLD STEP LOSS GOODPUT INTERRUPTIONS AGE NOTE"
    )


def test_lines_that_are_longer_than_the_screen_are_printed_whole(
    epj: Callable[..., tuple[int, str]],
) -> None:
    cluster = RecordedCluster()
    for job in ("lost", "suspended"):
        manifest = recorded(job)["job"]
        manifest["metadata"]["name"] = f"{LONG}-{job[0]}"
        cluster.put(manifest)
    shown = epj(cluster, "list", "-A", width=80)[1]
    assert f"{LONG}-l" in shown
    assert "2/3" in shown
