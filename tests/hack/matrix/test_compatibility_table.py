"""The program behind `make matrix`, but for the environments that it makes."""

import importlib.util
import re
from typing import Any

import pytest
from elastic_pytorch.agent.torch_names import TESTED
from environment import index_answers, pinned
from frameworks import FRAMEWORKS
from packaging.version import Version
from table import FRAMEWORKS_HEAD, HEAD, FrameworkOutcome, Row, count, with_framework_rows, with_rows

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


def row(torch: str, python: str = "3.11", run: str = "2026-11-22, abc1234") -> Row:
    return Row(torch, python, 12, 7, [], [("needs torch 2.5 | 2.6", 2)], run)


def page(*rows: Row) -> str:
    return "\n".join(["# Title", "", *HEAD, *(row.text() for row in rows), "", "After.", ""])


def test_report_is_counted() -> None:
    failed = ["test_one", "tests.worker_image.agent.test_broken"]
    assert count(REPORT) == (2, 1, failed, [("needs torch 2.5", 3)])


def test_rows_of_releases_that_are_run_again_are_replaced_and_the_others_kept() -> None:
    before = page(row("2.4.1+cu121"), row("2.10.0+cpu"))
    assert with_rows(before, []) == before
    new = [row("2.4.1+cpu", run="later"), row("2.4.1+cpu", "3.10"), row("2.6.0+cpu")]
    assert with_rows(before, new) == page(new[1], new[0], new[2], row("2.10.0+cpu"))


def test_table_may_be_empty_and_at_the_end_of_the_page() -> None:
    empty = "\n".join(["# Title", *HEAD, ""])
    assert with_rows(empty, [row("2.4.1")]) == "\n".join(["# Title", *HEAD, row("2.4.1").text(), ""])


def test_row_says_what_has_failed_and_what_was_left_out() -> None:
    assert row("2.4.1").text() == "| 2.4.1 | 3.11 | 12 | 7 | none | needs torch 2.5 / 2.6 (2) | 2026-11-22, abc1234 |"
    assert "| `test_a`, `test_b` | none |" in Row("2.4.1", "3.11", 1, 1, ["test_a", "test_b"], [], "today").text()


def test_page_of_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs" / "evidence" / "compatibility.md").read_text()
    assert with_rows(text, []) == text


def test_rows_of_frameworks_are_replaced_by_their_names() -> None:
    def outcome(name: str, passed: int) -> FrameworkOutcome:
        return FrameworkOutcome(name, "lightning 2.6.6", "2.15.0+cpu", "3.11", passed, [], [], "today")

    def table(*rows: FrameworkOutcome) -> str:
        return "\n".join(["# Title", "", *FRAMEWORKS_HEAD, *(row.text() for row in rows), "", "After.", ""])

    before = table(outcome("deepspeed-oldest", 1), outcome("torchtitan", 2))
    after = with_framework_rows(before, [outcome("torchtitan", 3), outcome("lightning-newest", 4)])
    assert after == table(outcome("deepspeed-oldest", 1), outcome("lightning-newest", 4), outcome("torchtitan", 3))
    assert "| lightning-newest | lightning 2.6.6 | 2.15.0+cpu | 3.11 | 4 | none | none | today |" in after


def test_page_on_frameworks_has_their_table() -> None:
    text = (ROOT / "docs" / "use" / "frameworks.md").read_text()
    assert with_framework_rows(text, []) == text


def test_agent_names_the_oldest_and_the_newest_release_of_the_table() -> None:
    text = (ROOT / "docs" / "evidence" / "compatibility.md").read_text()
    releases = sorted((int(major), int(minor)) for major, minor in re.findall(r"^\| (\d+)\.(\d+)\.\d+\+", text, re.MULTILINE))
    assert " to ".join(f"{major}.{minor}" for major, minor in (releases[0], releases[-1])) == TESTED


@pytest.fixture
def program() -> Any:
    spec = importlib.util.spec_from_file_location("matrix_main", ROOT / "hack" / "matrix" / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_releases_are_named_by_their_first_two_numbers(program: Any) -> None:
    assert program.parse_options("2.15.0", []).releases == [*program.RELEASES, "2.15.0", *program.FRAMEWORKS]
    assert program.parse_options("2.15.0", ["2.4", "2.15", "2.7.1"]).releases == ["2.4.1", "2.15.0", "2.7.1"]


def test_what_follows_two_dashes_goes_to_pytest(program: Any) -> None:
    options = program.parse_options("2.15.0", ["2.4", "--", "tests/worker_image/state", "-k", "sharded"])
    assert (options.releases, options.tests) == (["2.4.1"], ("tests/worker_image/state", "-k", "sharded"))
    assert program.parse_options("2.15.0", ["2.4"]).tests == ()


def test_rows_of_frameworks_are_named_and_none_installs_an_older_torch_than_the_agent_takes(program: Any) -> None:
    assert program.parse_options("2.15.0", ["deepspeed-oldest", "2.4"]).releases == ["deepspeed-oldest", "2.4.1"]
    oldest = TESTED.partition(" ")[0]
    for name, framework in FRAMEWORKS.items():
        assert all("==" in package for package in framework.packages), name
        assert not framework.torch or Version(framework.torch) >= Version(oldest), name
        assert framework.tests.partition("tests/frameworks/")[2] == name.partition("-")[0], name


def test_what_the_tests_need_is_taken_from_the_lock_file() -> None:
    lock = "# made by uv\npytest==9.0 \\\n    --hash=sha256:ab==\n    # via x\ntorch==2.15.0 ; sys_platform == 'linux' \\\n"
    assert pinned(lock, ["torch", "pytest"]) == ["torch==2.15.0", "pytest==9.0"]


def test_index_that_cannot_be_reached_does_not_answer() -> None:
    assert not index_answers("http://127.0.0.1:9/whl/cpu")
