"""Records of a trial become its figures, and figures tables, complaints and a picture."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import picture, report, results
from bench.results import Figures, Result, Spread, measure, story
from bench.scenarios import SCENARIOS
from measure.records import Declared, Init, PodCreated, Record, Started, Step, Taken
from measure.timeline import Timeline
from rich.console import Console

QUIET = Figures(None, None, None, None, None, 0.11, None, None, None, None, 0, 0, 0)


def steps(pod: str, first: int, last: int, *, at: float, world: int) -> list[Record]:
    return [Step(at + 0.1 * (number - first), pod, number, world) for number in range(first, last + 1)]


def group(*pods: str, round_: int, at: float) -> list[Record]:
    """Agents take up a round, start their workers 0.05 s later, each 0.01 s after the other, who join 0.1 s after that."""
    records: list[Record] = []
    for rank, pod in enumerate(pods):
        begin = at + 0.01 * rank
        records += [Taken(begin, pod, round_, rank, len(pods)), Started(begin + 0.05, pod, (7,))]
        records.append(Init(begin + 0.15, pod, rank, len(pods)))
    return records


# A fault at 10.05: c is lost; a and b train again from the checkpoint of step 40, and d joins them.
UNDISTURBED = [*group("a", "b", "c", round_=1, at=5.0), *steps("a", 1, 47, at=5.4, world=3)]  # the last at 10.0
LOSS = [
    *UNDISTURBED,
    PodCreated(10.3, "d"),
    Declared(10.2, 2, ("a", "b"), "WorkerLost", "c was deleted"),
    *group("a", "b", round_=2, at=10.25),
    *steps("a", 41, 60, at=10.5, world=2),  # the last at 12.4
    Declared(12.4, 3, ("a", "b", "d"), "WorkerJoined", "d is ready"),
    *group("a", "b", "d", round_=3, at=12.45),
    *steps("a", 61, 80, at=12.8, world=3),
]


def of(records: Sequence[Record], *, fault_at: float = 10.05, ended_at: float = 20.0) -> Figures:
    return measure(Timeline(records).until(ended_at), fault_at, wanted=3)


def test_loss_that_is_made_good_has_its_phases_in_whatever_order_logs_arrive() -> None:
    found = of(LOSS)
    assert (found.trains_again, found.pause, found.whole, found.replaced) == pytest.approx((0.45, 0.5, 2.75, 0.25))
    assert (found.steps_lost, found.rounds) == (7, 2)  # 41 to 47
    phases = (found.detect, found.start, found.init, found.first_step)
    assert phases == pytest.approx((0.15, 0.11, 0.09, 0.1))
    assert of(list(reversed(LOSS))) == found
    assert [story(Timeline(LOSS).until(10.65), 10.05)[i] for i in (0, -2, -1)] == [
        (-2.95, 18, 3),
        (0.45, 41, 2),
        (0.55, 42, 2),
    ]


def figures(again: float = 0.4, *, rounds: int = 2, replaced: float = 0.1, restarts: int = 0, failures: int = 0) -> Figures:
    return Figures(again, again + 0.05, 7, 3.0, replaced, again, 0.1, 0.1, 0.1, 0.1, rounds, restarts, failures)


def result(scenario: str = "lose-pod", measured: Figures | None = None, error: str = "") -> Result:
    told = [(-0.2, 40, 3), (-0.1, 41, 3), (0.4, 41, 2), (0.5, 42, 2), (3.0, 43, 3), (3.1, 44, 3)]
    return Result(scenario, "2026-11-21T12:00:00Z", "a fault", measured, told, [(0.1, "2 WorkerLost: a")], error)


def test_median_is_of_trials_that_were_measured_and_all_are_kept(tmp_path: Path) -> None:
    made = [result(measured=figures(again)) for again in (0.4, 0.6, 0.5)] + [result(error="waited in vain")]
    results.write(tmp_path / "results.json", made)
    assert results.read(tmp_path / "results.json") == made
    assert results.spread(made, "trains_again") == Spread(0.5, 0.6)
    assert results.typical(made, "trains_again") == made[2]
    assert results.spread([result(measured=QUIET)], "trains_again") is None


def test_what_is_not_as_promised_is_said() -> None:
    said = {
        "": result(measured=figures()),
        "lose-pod: the median is 1.30 s, the target 1.2 s": result(measured=figures(1.3)),
        "lose-pod: rounds 3 instead of 2 in 1 of 1 trials": result(measured=figures(rounds=3)),
        "lose-pod: restarts 1 instead of 0 in 1 of 1 trials": result(measured=figures(restarts=1)),
        "lose-pod: failures 1 instead of 0 in 1 of 1 trials": result(measured=figures(failures=1)),
        "lose-pod: waited in vain": result(error="waited in vain"),
        "lose-node: replaced after 7.00 s, the target is 6.0 s": result("lose-node", figures(replaced=7.0)),
    }
    assert {complaint: report.complaints([made]) for complaint, made in said.items()} == {it: [it] * bool(it) for it in said}
    handler = [result(measured=figures()), result("lose-pod-handler", figures(1.0))]
    assert report.complaints(handler) == ["lose-pod-handler: the median is 1.00 s, without a handler 0.40 s"]


def test_tables_have_a_line_for_each_kind_and_the_picture_is_drawn(tmp_path: Path) -> None:
    measured = {name: QUIET if scenario.rounds == 0 else figures() for name, scenario in SCENARIOS.items()}
    made = [result(name, found) for name, found in measured.items()] + [result(error="waited in vain")]
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(report.main_table(made))
    console.print(report.phase_table(made))
    text = console.export_text()
    assert not [name for name in SCENARIOS if name not in text]
    assert "1/2" in text, "one of two trials has failed"
    assert report.describe(made[-1]) == "FAILED: waited in vain"
    picture.draw(made, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    spans = picture.spans([(0.0, 1, 3), (0.1, 2, 3), (0.2, 2, 3), (0.3, 3, 3), (0.4, 4, 2), (2.0, 5, 2)])
    assert spans == [(0.0, 0.1, 3), (0.2, 0.3, 3), (0.4, 0.4, 2), (2.0, 2.0, 2)]
