import io
from pathlib import Path

import pytest
from bench import picture, report, results
from bench.results import Figures, Result, Spread
from bench.scenarios import SCENARIOS
from rich.console import Console

QUIET = Figures(None, None, None, None, None, 0.11, None, None, None, None, 0, 0, 0)


def figures(
    again: float = 0.4, *, rounds: int = 2, replaced: float | None = 0.1, restarts: int = 0, failures: int = 0
) -> Figures:
    return Figures(again, again + 0.05, 7, 3.0, replaced, again, 0.1, 0.1, 0.1, 0.1, rounds, restarts, failures)


def result(scenario: str = "lose-pod", measured: Figures | None = None, error: str = "") -> Result:
    story = [(-0.2, 40, 3), (-0.1, 41, 3), (0.4, 41, 2), (0.5, 42, 2), (3.0, 43, 3), (3.1, 44, 3)]
    return Result(scenario, "2026-11-21T12:00:00Z", "a fault", measured, story, [(0.1, "2 WorkerLost: a")], error)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = [result(measured=figures()), result(error="waited in vain"), result("operator-restart", QUIET)]
    results.write(tmp_path / "bench" / "results.json", made)
    assert results.read(tmp_path / "bench" / "results.json") == made
    assert results.read(tmp_path / "none.json") == []


def test_median_and_worst_of_those_that_were_measured() -> None:
    found = [result(measured=figures(again)) for again in (0.4, 0.6, 0.5)] + [result(error="waited in vain")]
    assert results.spread(found, "trains_again") == Spread(0.5, 0.6)
    assert results.spread([result(measured=QUIET)], "trains_again") is None
    middle = results.typical(found, "trains_again")
    assert middle is not None
    assert middle.figures == figures(0.5)
    assert results.typical(found[3:], "trains_again") is None


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (result(measured=figures()), None),
        (result("operator-restart", QUIET), None),
        (result("kill-process", figures(rounds=1)), None),
        (result(measured=figures(1.3)), "lose-pod: the median is 1.30 s, the target 1.2 s"),
        (result(measured=figures(rounds=3)), "lose-pod: rounds 3 instead of 2 in 1 of 1 trials"),
        (result(measured=figures(restarts=1)), "lose-pod: restarts 1 instead of 0 in 1 of 1 trials"),
        (result(measured=figures(failures=1)), "lose-pod: failures 1 instead of 0 in 1 of 1 trials"),
        (result(error="waited in vain"), "lose-pod: waited in vain"),
        (result("lose-pod-handler", figures(1.0)), "lose-pod-handler: the median is 1.00 s, without a handler 0.40 s"),
        (result("lose-pod-handler", figures(0.8)), None),
        (result("lose-node", figures(replaced=7.0)), "lose-node: replaced after 7.00 s, the target is 6.0 s"),
    ],
)
def test_says_what_is_not_as_promised(made: Result, complaint: str | None) -> None:
    before = [result(measured=figures())] if made.scenario == "lose-pod-handler" else []
    assert report.complaints([*before, made]) == ([complaint] if complaint else [])


def every_kind() -> list[Result]:
    measured = {name: QUIET if scenario.rounds == 0 else figures() for name, scenario in SCENARIOS.items()}
    return [result(name, found) for name, found in measured.items()] + [result(error="waited in vain")]


def test_tables_have_a_line_for_each_kind() -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(report.main_table(every_kind()))
    console.print(report.phase_table(every_kind()))
    text = console.export_text()
    assert all(text.count(name) >= 1 for name in SCENARIOS)
    assert "1/2" in text, "one of two trials has failed"


def test_each_trial_is_told_in_a_line() -> None:
    lines = [report.describe(made) for made in every_kind()]
    assert lines[2] == "trains again 0.40 s, pause 0.45 s, at size 3.00 s, pod made 0.10 s, 7 steps lost, 2 rounds"
    assert lines[-2:] == ["longest gap 0.11 s, 0 rounds", "FAILED: waited in vain"]


def test_draws_a_picture(tmp_path: Path) -> None:
    picture.draw(every_kind(), tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    picture.draw([], tmp_path / "nothing.png")
    assert not (tmp_path / "nothing.png").exists()


def test_picture_shows_what_was_measured_of_the_two(tmp_path: Path) -> None:
    picture.draw([result("scale-up", figures()), result("drain", figures())], tmp_path / "one.png")
    assert (tmp_path / "one.png").exists()
    picture.draw([result("drain", figures())], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_groups_end_with_a_pause_a_new_size_or_a_step_back() -> None:
    assert picture.spans([(0.0, 1, 3), (0.1, 2, 3), (0.2, 2, 3), (0.3, 3, 3), (0.4, 4, 2), (2.0, 5, 2)]) == [
        (0.0, 0.1, 3),
        (0.2, 0.3, 3),
        (0.4, 0.4, 2),
        (2.0, 2.0, 2),
    ]
    assert picture.spans([]) == []
