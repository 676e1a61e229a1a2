"""Runs are read from what processes have told, kept, and shown."""

from dataclasses import replace
from pathlib import Path

import pytest
from replay import picture, report
from replay import run as runs
from replay.__main__ import CAPTION, PAGE, parse_options
from replay.jobs import JOBS
from replay.run import Joined, Run, SetUp, Step, members, read_lines

from tests.hack.replay.histories import STEP, History

LINES = [
    {"what": "set-up", "at": 2.0, "began": 1.0, "worker": "a"},
    {"what": "began", "at": 3.0, "worker": "a", "RANK": 0, "WORLD_SIZE": 2},
    {"what": "began", "at": 3.0, "worker": "b", "RANK": 1, "WORLD_SIZE": 2},
    {"what": "step", "at": 3.4, "worker": "b", "RANK": 1, "WORLD_SIZE": 2, "step": 1},
    {"what": "step", "at": 3.5, "worker": "a", "RANK": 0, "WORLD_SIZE": 2, "step": 1},
    {"what": "began", "at": 5.0, "worker": "b", "RANK": 0, "WORLD_SIZE": 1},
    {"what": "step", "at": 5.5, "worker": "b", "RANK": 0, "WORLD_SIZE": 1, "step": 2},
]


def a_run(trace: str, job: str, pause: float, factor: float = 100.0) -> Run:
    history = History()
    history.join("a", "b", "c")
    history.train(50)
    history.event()
    history.wait(pause)
    history.join("a", "b", "c")
    history.train(50)
    return history.run(trace, job, factor)


def test_steps_are_those_of_rank_0_and_each_of_its_groups_has_a_number() -> None:
    steps, joined, set_ups = read_lines(reversed(LINES))
    assert steps == [Step(3.5, 1, 2, 1), Step(5.5, 2, 1, 2)]
    assert sorted(joined) == [Joined(3.0, "a"), Joined(3.0, "b"), Joined(5.0, "b")]
    assert set_ups == [SetUp(1.0, 2.0, "a")]
    assert members(LINES, since=3.45) == {"a": 2, "b": 1}


def test_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = [a_run("research", "plain", 1.0), a_run("spot", "restart-all", 2.0)]
    for each in made:
        runs.write(tmp_path, each)
    assert runs.read_all(tmp_path) == made


def test_tables_lead_with_the_ratio_at_the_real_rate() -> None:
    shown = report.tables([a_run("spot", "library", 0.5), a_run("spot", "restart-all", 9.0), a_run("research", "plain", 1.0)])
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[:4] for row in rows if "**" in row] == [
        ["| training library, `prepare`", "**99.99 %**", "97.90 %", "0.50 (0.50)"],
        [
            "| without this operator: stock torchrun, fixed size, all pods are made again",
            "**99.75 %**",
            "83.08 %",
            "9.00 (9.00)",
        ],
        ["| plain script", "**100.00 %**", "99.98 %", "1.00 (1.00)"],
    ]
    assert "Seed 1, 100 times as fast as in reality, commit abc." in shown
    assert shown.index("64 GPUs") < shown.index("512 GPUs")


def test_complaints_name_what_is_below_its_goal_and_what_has_failed() -> None:
    slow, fast = a_run("spot", "library", 150.0), a_run("spot", "plain", 150.0)
    broken = replace(a_run("spot", "sharded", 1.0), error="Waited: for nothing")
    empty = replace(a_run("research", "spares", 1.0), events=[])
    assert report.complaints([slow, fast, broken, empty]) == [
        "spot, sharded: Waited: for nothing",
        "research, spares: too few steps or events",
        "spot, library: 95.83 % at the real rate, the goal is 97.00 %",
    ]
    assert report.describe(broken) == "FAILED: Waited: for nothing"
    assert report.describe(empty) == "FAILED: no event was made"
    assert report.describe(fast).endswith("95.83 % at the real rate; steps: 100 with 3")


def test_page_has_the_block_that_is_written() -> None:
    text = PAGE.read_text()
    written = report.page(text, [a_run("spot", "library", 0.5)], CAPTION)
    assert written.count("**99.99 %**") == 1
    assert report.page(written, [a_run("spot", "library", 0.5)], CAPTION) == written
    with pytest.raises(ValueError, match="lacks the lines"):
        report.page("nothing", [], CAPTION)


def test_picture_has_a_bar_for_each_job(tmp_path: Path) -> None:
    path = tmp_path / "trace.svg"
    picture.draw([], path)
    assert not path.exists()
    picture.draw([a_run(trace, job, STEP * 5) for trace in ("spot", "research") for job in JOBS], path)
    text = path.read_text()
    assert picture.NAMES.keys() == JOBS.keys()
    assert all(text.count(f">{name}<") == 2 for name in picture.NAMES.values())
    assert "64 GPUs" in text
    assert "512 GPUs" in text


def test_only_jobs_and_traces_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    options = parse_options(["--only", "plain,library", "--traces", "spot", "--minutes", "1", "--seed", "7"])
    assert (options.only, options.traces, options.minutes, options.seed) == (["library", "plain"], ["spot"], 1.0, 7)
    with pytest.raises(SystemExit):
        parse_options(["--only", "luck"])
    assert "no such name: luck; there are library" in capsys.readouterr().err
