"""The program behind `make matrix`, but for the environments that it makes."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch.agent.torch_names import TESTED
from environment import index_answers, pinned
from packaging.version import Version
from rows import AGENT_AND_LIBRARY, RELEASES, framework_rows, torch_rows
from table import FRAMEWORKS_HEAD, HEAD, Outcome, Row, Run, count, log_with_row, run_of, with_row

from tests.paths import ROOT

REPORT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" tests="6">
<testcase classname="tests.worker_image.running_agent.test_start" name="test_modules"/>
<testcase classname="tests.worker_image.running_agent.test_group" name="test_two"/>
<testcase classname="tests.worker_image.state.test_state" name="test_one"><failure message="assert 1 == 2">...</failure></testcase>
<testcase classname="tests.storage.test_snapshot" name="test_slots"/>
<testcase classname="tests.worker_image.state.t" name="test_a"><skipped type="pytest.skip" message="needs torch 2.5">x</skipped></testcase>
<testcase classname="tests.worker_image.state.t" name="test_b"><skipped type="pytest.skip" message="needs torch 2.5">x</skipped></testcase>
<testcase classname="" name="tests.worker_image.state.test_c">
<skipped type="pytest.skip" message="collection skipped">('/a/b.py', 7, 'Skipped: needs torch 2.5')</skipped></testcase>
<testcase classname="" name="tests.worker_image.agent.test_broken"><error message="collection failure">...</error></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def program() -> Any:
    spec = importlib.util.spec_from_file_location("matrix_main", ROOT / "hack" / "matrix" / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(torch: str, python: str = "3.11", failed: Sequence[str] = ()) -> Row:
    return Row((torch, python, "12", "7"), Outcome(12, 7, failed, {"needs torch 2.5 | 2.6": ["a::b", "a::c"]}))


RUN = Run("2026-11-22", "abc1234")
LATER = Run("2026-11-23", "abc1234")
OTHER = Run("2026-11-23", "fff4321")


def page(run: Run, *rows: Row, head: str = HEAD) -> str:
    ruler = "|---" * (head.count("|") - 1) + "|"
    return "\n".join(["# Title", "", run.text(), "", head, ruler, *(row.line() for row in rows), "", "After.", ""])


def test_report_is_counted() -> None:
    failed = ["tests.worker_image.agent.test_broken", "tests.worker_image.state.test_state::test_one"]
    left_out = ["tests.worker_image.state.t::test_a", "tests.worker_image.state.t::test_b", "tests.worker_image.state.test_c"]
    assert count(REPORT) == Outcome(2, 1, failed, {"needs torch 2.5": left_out})


def test_rows_of_a_commit_are_replaced_by_their_release_and_kept_in_its_order() -> None:
    before = page(RUN, row("2.4.1+cu121"), row("2.10.0+cpu"))
    replaced = with_row(before, HEAD, LATER, row("2.4.1+cpu", "3.10"))
    assert replaced == page(LATER, row("2.4.1+cpu", "3.10"), row("2.10.0+cpu"))
    added = with_row(before, HEAD, LATER, row("2.6.0+cpu"))
    assert added == page(LATER, row("2.4.1+cu121"), row("2.6.0+cpu"), row("2.10.0+cpu"))


def test_rows_of_another_commit_leave_the_page_and_the_log() -> None:
    new = row("2.4.1+cpu")
    assert with_row(page(RUN, row("2.4.1+cu121"), row("2.6.0+cpu")), HEAD, OTHER, new) == page(OTHER, new)
    log = log_with_row(log_with_row("", HEAD, RUN, row("2.6.0+cpu")), HEAD, OTHER, new)
    assert log == f"{OTHER.text()}\n\n{HEAD}\n\n{new.section()}\n"


def test_table_may_be_empty_and_at_the_end_of_the_page() -> None:
    empty = "\n".join(["# Title", "", RUN.text(), "", HEAD, "|---|---|", ""])
    assert with_row(empty, HEAD, RUN, row("2.4.1")).endswith(f"{HEAD}\n|---|---|---|---|---|---|\n{row('2.4.1').line()}\n")


def test_row_counts_what_has_failed_and_what_was_left_out_and_the_log_names_it() -> None:
    line = "| 2.4.1 | 3.11 | 12 | 7 | 2 | needs torch 2.5 / 2.6 (2) |"
    assert row("2.4.1", failed=["a::d", "a::e"]).line() == line
    section = row("2.4.1", failed=["a::d", "a::e"]).section()
    assert section == f"{line}\nfailed: a::d\nfailed: a::e\nleft out: a::b\nleft out: a::c"


def test_log_keeps_the_sections_of_a_commit_in_the_order_of_their_releases() -> None:
    rows = [row("2.10.0+cpu"), row("2.4.1+cpu", failed=["a::d"]), row("2.10.0+cpu", "3.12")]
    log = ""
    for each in rows:
        log = log_with_row(log, HEAD, RUN, each)
    assert log == f"{RUN.text()}\n\n{HEAD}\n\n{rows[1].section()}\n\n{rows[2].section()}\n"


def test_rows_of_frameworks_are_replaced_by_their_names() -> None:
    def outcome(name: str, passed: int) -> Row:
        return Row((name, "lightning 2.6.6", "2.15.0+cpu", "3.11", str(passed)), Outcome(0, passed, [], {}))

    before = page(RUN, outcome("deepspeed-oldest", 1), outcome("torchtitan", 2), head=FRAMEWORKS_HEAD)
    after = with_row(before, FRAMEWORKS_HEAD, RUN, outcome("torchtitan", 3))
    assert after == page(RUN, outcome("deepspeed-oldest", 1), outcome("torchtitan", 3), head=FRAMEWORKS_HEAD)
    assert "| torchtitan | lightning 2.6.6 | 2.15.0+cpu | 3.11 | 3 | 0 | none |" in after


def test_pages_of_the_documentation_have_the_tables(program: Any) -> None:
    for table in program.tables("2.15.0"):
        run_of(table.page.read_text(), table.head)


def test_row_alone_is_written_only_if_the_table_is_of_its_commit(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page(RUN, row("2.4.1")))
    table = program.Table(torch_rows("2.15.0"), HEAD, path, tmp_path / "page.log")
    assert table.takes(LATER, ["2.4.1"]) and not table.takes(OTHER, ["2.4.1"])
    assert table.takes(OTHER, [*RELEASES, "2.15.0", "torchtitan"])


def test_agent_names_the_oldest_and_the_newest_release_of_the_table() -> None:
    newest = pinned((ROOT / "requirements-dev.lock").read_text(), ["torch"])[0].removeprefix("torch==")
    oldest, *_, last = sorted(map(Version, torch_rows(newest)))
    assert f"{oldest.major}.{oldest.minor} to {last.major}.{last.minor}" == TESTED


KNOWN = {**torch_rows("2.15.0"), **framework_rows("2.15.0")}


def test_releases_are_named_by_their_first_two_numbers(program: Any) -> None:
    assert program.parse_options(KNOWN, []).rows == list(KNOWN)
    assert program.parse_options(KNOWN, ["2.4", "2.15", "2.7.1", "torchtitan"]).rows == [
        "2.4.1",
        "2.15.0",
        "2.7.1",
        "torchtitan",
    ]


def test_what_follows_two_dashes_goes_to_pytest(program: Any) -> None:
    options = program.parse_options(KNOWN, ["2.4", "--", "tests/worker_image/state", "-k", "sharded"])
    assert (options.rows, options.tests) == (["2.4.1"], ("tests/worker_image/state", "-k", "sharded"))
    assert program.parse_options(KNOWN, ["2.4"]).tests == ()


def test_rows_of_frameworks_pin_what_they_install_and_none_has_an_older_torch_than_the_agent_takes() -> None:
    oldest = TESTED.partition(" ")[0]
    for name, row in framework_rows("2.15.0").items():
        assert row.packages and all("==" in package for package in row.packages), name
        assert Version(row.torch) >= Version(oldest), name
        assert (ROOT / row.tests[-1]).is_dir() and row.tests[-1].endswith(name.partition("-")[0]), name


def test_each_row_of_torch_runs_tests_that_exist() -> None:
    paths = [argument for argument in AGENT_AND_LIBRARY if argument.startswith("tests/")]
    assert paths and not [path for path in paths if not (ROOT / path).exists()]


def test_what_the_tests_need_is_taken_from_the_lock_file() -> None:
    lock = "# made by uv\npytest==9.0 \\\n    --hash=sha256:ab==\n    # via x\ntorch==2.15.0 ; sys_platform == 'linux' \\\n"
    assert pinned(lock, ["torch", "pytest"]) == ["torch==2.15.0", "pytest==9.0"]


def test_index_that_cannot_be_reached_does_not_answer() -> None:
    assert not index_answers("http://127.0.0.1:9/whl/cpu")
