"""The picture of the dashboard: what is drawn of which answer, without a Prometheus."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from grafana import draw_dashboard
from panels import PALETTE, Panel, Place, Query, curves, fill_in, rate_interval_seconds, read_panels, stack
from PIL import Image
from simulated_training import CHECKPOINT_STEPS, START_SECONDS, STEPS_PER_SECOND, Training
from units import ticks, write_value

from tests.paths import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "charts" / "elastic-pytorch-operator" / "files" / "dashboard.json").read_text())
PLACE = Place(0, 0, 8, 8)


def series(values: dict[int, str], **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [[at, value] for at, value in values.items()]}


def test_expressions_are_asked_with_grafanas_variables_filled_in() -> None:
    assert fill_in("rate(x[$__rate_interval]) + $y ${y}z", {"__rate_interval": "4s", "y": "1"}) == "rate(x[4s]) + 1 1z"
    with pytest.raises(KeyError):
        fill_in("$unknown", {})
    assert (rate_interval_seconds(1, 1), rate_interval_seconds(60, 15)) == (4, 75)


def test_every_expression_of_the_dashboard_can_be_asked() -> None:
    queries = [query for panel in read_panels(DASHBOARD) for query in panel.queries]
    assert queries
    for query in queries:
        assert "$" not in fill_in(query.expression, {"__rate_interval": "4s", "namespace": ".*"})


def test_panel_is_read_as_grafana_does() -> None:
    jobs = next(panel for panel in read_panels(DASHBOARD) if panel.title == "Jobs")
    assert (jobs.stacked, jobs.bars, jobs.fill, jobs.empty) == (True, False, 0.3, "No data")
    assert jobs.colors["Running"] != jobs.colors["Failed"]
    changes = next(panel for panel in read_panels(DASHBOARD) if panel.title == "Changes of groups")
    assert (changes.bars, changes.empty) == (True, "None")


def test_each_series_is_a_curve_with_its_name_and_color_and_gaps_where_it_says_nothing() -> None:
    panel = Panel(
        "t", "timeseries", PLACE, queries=(Query("a", "{{ state }} {{code}}"), Query("b", "all")), colors={"all": "red"}
    )
    answers = [[series({1: "1", 3: "NaN"}, state="up", code="200"), series({9: "1"}, state="never")], [series({2: "5"})]]
    first, last = curves(panel, answers, range(1, 4))
    assert (first.name, first.color) == ("up 200", PALETTE[0])
    assert first.values[0] == 1
    assert all(map(math.isnan, first.values[1:]))
    assert (last.name, last.color, last.values[1]) == ("all", "red", 5)


def test_stacked_curves_stand_on_each_other_and_gaps_have_no_height() -> None:
    panel = Panel("t", "timeseries", PLACE, queries=(Query("a", "{{of}}"),))
    found = [series({1: "1", 2: "2"}, of="a"), series({2: "3"}, of="b"), series({1: "4", 2: "1"}, of="c")]
    first, second, third = stack(curves(panel, [found], range(1, 3)))
    assert (first, third) == (((0, 0), (1, 2)), ((1, 5), (5, 6)))
    assert (second[0][1], second[1][1]) == (2, 5)
    assert math.isnan(second[0][0])


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0, "s", "0 s"),
        (0.004, "s", "4 ms"),
        (90, "s", "1.5 min"),
        (64 * 2**20, "bytes", "64 MiB"),
        (2.5, "reqps", "2.5 req/s"),
        (1500, "short", "1.5 K"),
        (4, "short", "4"),
    ],
)
def test_values_are_written_in_their_unit(value: float, unit: str, written: str) -> None:
    assert write_value(value, unit) == written


def test_ticks_are_round_and_reach_the_highest_value() -> None:
    assert ticks(7, "short") == [0, 2, 4, 6, 8]
    assert ticks(100 * 2**20, "bytes") == [0, 50 * 2**20, 100 * 2**20]
    assert ticks(0, "short")[-1] == 1


def test_picture_has_all_panels_and_says_which_are_empty(tmp_path: Path) -> None:
    panels = read_panels(DASHBOARD)
    answers = [[[series({100: "1", 130: "2"}, state="Running", pod="p")] for _ in panel.queries] for panel in panels]
    bare = next(number for number, panel in enumerate(panels) if panel.title == "Tokens reviewed")
    answers[bare] = [[]]
    recorded = {"start": 100, "end": 130, "step": 1, "marks": [[110, "something happens"]], "answers": answers}
    assert draw_dashboard(DASHBOARD, recorded, tmp_path / "drawn.png") == ["Tokens reviewed"]
    with Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.width > 1000


def test_documentation_shows_the_picture() -> None:
    assert re.search(r"!\[.+\]\(screens/dashboard\.png\)", (ROOT / "docs" / "operations.md").read_text())
    assert (ROOT / "docs" / "screens" / "dashboard.png").is_file()


def test_training_goes_back_to_the_checkpoint_unless_nobody_was_lost() -> None:
    training = Training()
    for worker in "ab":
        assert training.step(0.0) is None
        training.enter(worker, 1, 2, orderly=False, now=0.0)
    later = START_SECONDS + (CHECKPOINT_STEPS + 9) / STEPS_PER_SECOND
    assert training.step(later) == CHECKPOINT_STEPS + 10
    training.leave("b", later)
    assert training.step(later + 60) == CHECKPOINT_STEPS + 10, "a waits for b in vain"
    training.enter("a", 2, 1, orderly=False, now=later)
    assert training.step(later) is None, "what the round before came to is none of this round's"
    assert training.step(later + START_SECONDS) == training.first == CHECKPOINT_STEPS + 1
    training.enter("a", 3, 1, orderly=True, now=later + START_SECONDS)
    assert training.first == CHECKPOINT_STEPS + 2
