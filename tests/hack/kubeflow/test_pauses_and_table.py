"""Logs of steps become pauses, and pauses a table."""

from pathlib import Path

import pytest
from kubeflow import results
from kubeflow.pauses import Figures, figures
from kubeflow.report import complaints, describe, table
from kubeflow.results import Run, Trial
from replay.run import Step

SIZE = 3


def steps(*parts: tuple[float, float, int, int, int]) -> list[Step]:
    """The steps of several groups: of each from when until when, from which number, the workers, and the group's number."""
    made = []
    for begin, end, number, world, group in parts:
        count = round((end - begin) / 0.05)
        made += [Step(begin + 0.05 * n, number + n, world, group) for n in range(count + 1)]
    return made


def test_longest_pause_is_found_whether_the_group_shrinks_or_grows() -> None:
    shrinks = steps((0, 1, 0, 3, 1), (5, 6, 18, 2, 2), (8, 9, 38, 3, 3))
    assert figures(shrinks, 0.99, SIZE) == Figures(pause=4.0, stopped=6.0, whole=7.01, repeated=3 + 1)
    grows = steps((0, 1, 0, 3, 1), (2, 3, 21, 2, 2), (9, 10, 42, 3, 3))
    assert figures(grows, 0.99, SIZE) == Figures(pause=6.0, stopped=7.0, whole=8.01, repeated=0)


def test_group_that_is_whole_at_once_pauses_once() -> None:
    found = figures(steps((0, 1, 0, 3, 1), (12, 13, 21, 3, 2)), 0.99, SIZE)
    assert found == Figures(pause=11.0, stopped=11.0, whole=11.01, repeated=0)


def test_group_trains_on_for_a_while_after_a_polite_loss() -> None:
    found = figures(steps((0, 2, 0, 3, 1), (2.2, 3, 41, 2, 2), (3.3, 4, 58, 3, 3)), 1.0, SIZE)
    assert found == Figures(pause=0.3, stopped=0.3, whole=2.3, repeated=0)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        steps((0, 1, 0, 3, 1)),
        steps((0, 5, 0, 3, 1)),  # the group of before
        steps((0, 1, 0, 3, 1), (5, 6, 18, 2, 2)),
        steps((2, 3, 0, 3, 1)),  # no step before
    ],
)
def test_nothing_is_said_before_the_group_is_whole_again(seen: list[Step]) -> None:
    assert figures(seen, 0.99, SIZE) is None


def trial(job: str, pause: float, repeated: int = 0, kind: str = "worker-force") -> Trial:
    return Trial(job, kind, "2026-11-28T12:00:00Z", "w1", Figures(pause, pause, pause + 2, repeated))


FAILED = Trial("pytorchjob", "first-force", "2026-11-28T12:00:00Z", "w0", None, "Waited: waited 120 s for it")
RUN = Run(
    {"training-operator": "v1.9.3", "torch": "2.6.0"},
    [
        *(trial("pytorchjob", pause, repeated) for pause, repeated in ((8.04, 3), (12.26, 20), (7.9, 5))),
        *(trial("plain", pause) for pause in (0.31, 0.29)),
        trial("plain", 0.5, kind="first-force"),
        FAILED,
    ],
)


def test_table_has_medians_with_the_worst_in_brackets() -> None:
    force, first = "| a worker is deleted by force", "| worker 0, or rank 0, is deleted by force"
    ours, theirs = "ElasticPyTorchJob, plain script", "PyTorchJob, tuned, plain script"
    assert table(RUN).splitlines() == [
        "| what happens | job | longest pause | stands still in all | until 3 train again | steps repeated | trials |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"{force} | {ours} | 0.30 (0.31) | 0.30 (0.31) | 2.30 (2.31) | 0 (0) | 2 |",
        f"{force} | {theirs} | 8.0 (12.3) | 8.0 (12.3) | 10.0 (14.3) | 5 (20) | 3 |",
        f"{first} | {ours} | 0.50 (0.50) | 0.50 (0.50) | 2.50 (2.50) | 0 (0) | 1 |",
        f"{first} | {theirs} | - | - | - | - | 0 of 1 |",
        "",
        "Measured with training-operator v1.9.3, torch 2.6.0.",
    ]


def test_failed_trials_are_named() -> None:
    assert complaints(RUN) == ["pytorchjob, first-force, at 2026-11-28T12:00:00Z: Waited: waited 120 s for it"]
    assert describe(FAILED) == "FAILED: Waited: waited 120 s for it"
    assert describe(trial("plain", 0.31)) == "paused 0.31 s, stood still 0.31 s, whole after 2.31 s, repeated 0 steps (w1)"


def test_results_are_kept(tmp_path: Path) -> None:
    results.write(tmp_path / "new" / "run.json", RUN)
    assert results.read(tmp_path / "new" / "run.json") == RUN
