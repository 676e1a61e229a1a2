import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch.agent.torch_names import TESTED
from environment import pinned
from packaging.version import Version
from rows import AGENT_AND_LIBRARY, RELEASES, framework_rows, torch_rows
from table import HEAD, Outcome, Row, Run, count, log_with_row, run_of, with_row

from tests.paths import ROOT

CASE, SKIPPED = (
    '<testcase classname="tests.w.{}" name="test_{}">{}</testcase>',
    '<skipped type="pytest.skip" message="{}">{}</skipped>',
)
RUN, LATER, OTHER = (
    Run("2026-11-22", "abc1234"),
    Run("2026-11-23", "abc1234"),
    Run("2026-11-23", "fff4321"),
)


@pytest.fixture
def program() -> Any:
    spec = importlib.util.spec_from_file_location(
        "matrix_main", ROOT / "hack" / "matrix" / "__main__.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(torch: str, python: str = "3.11", failed: Sequence[str] = ()) -> Row:
    return Row(
        (torch, python, "12", "7"),
        Outcome(12, 7, failed, {"needs torch 2.5 | 2.6": ["a::b", "a::c"]}),
    )


def page(run: Run, *rows: Row) -> str:
    ruler = "|---" * (HEAD.count("|") - 1) + "|"
    return "\n".join(
        [
            "# Title",
            "",
            run.text(),
            "",
            HEAD,
            ruler,
            *(row.line() for row in rows),
            "",
            "After.",
            "",
        ]
    )


def test_report_of_pytest_is_counted_with_what_failed_and_was_left_out() -> None:
    cases = [
        CASE.format("running_agent.test_start", "a", ""),
        CASE.format("running_agent.test_group", "b", ""),
    ]
    cases += [CASE.format("state.s", "c", '<failure message="assert 1 == 2">...</failure>')]
    cases += [CASE.format("state.t", name, SKIPPED.format("needs torch 2.5", "x")) for name in "de"]
    whole = SKIPPED.format("collection skipped", "('/a/b.py', 7, 'Skipped: needs torch 2.5')")
    cases += [f'<testcase classname="" name="tests.w.state.test_f">{whole}</testcase>']
    cases += [
        '<testcase classname="" name="tests.w.test_g"><error message="collection '
        'failure">...</error></testcase>'
    ]
    cases = [case.replace("tests.w.", "tests.worker_image.") for case in cases]
    found = count(f'<testsuites><testsuite name="pytest">{"".join(cases)}</testsuite></testsuites>')
    assert (sorted(found.failed), {why: len(left) for why, left in found.left_out.items()}) == (
        ["tests.worker_image.state.s::test_c", "tests.worker_image.test_g"],
        {"needs torch 2.5": 3},
    )
    assert found.agent == 2


def test_row_is_replaced_by_its_release_and_rows_of_another_commit_leave_page_and_log() -> None:
    before = page(RUN, row("2.4.1+cu121"), row("2.10.0+cpu"))
    assert with_row(before, HEAD, LATER, row("2.4.1+cpu", "3.10")) == page(
        LATER, row("2.4.1+cpu", "3.10"), row("2.10.0+cpu")
    )
    added = with_row(before, HEAD, LATER, row("2.6.0+cpu"))
    assert added == page(LATER, row("2.4.1+cu121"), row("2.6.0+cpu"), row("2.10.0+cpu"))
    assert with_row(before, HEAD, OTHER, row("2.4.1+cpu")) == page(OTHER, row("2.4.1+cpu"))
    log = ""
    for run, each in (
        (RUN, row("2.6.0+cpu")),
        (OTHER, row("2.10.0")),
        (OTHER, row("2.4.1", failed=["a::d"])),
    ):
        log = log_with_row(log, HEAD, run, each)
    left_out = "left out: a::b: needs torch 2.5 | 2.6\nleft out: a::c: needs torch 2.5 | 2.6"
    section = f"| 2.4.1 | 3.11 | 12 | 7 | 1 | 2 |\nfailed: a::d\n{left_out}"
    assert log == f"{OTHER.text()}\n\n{HEAD}\n\n{section}\n\n{row('2.10.0').section()}\n"


def test_row_alone_is_refused_if_the_table_is_of_another_commit(
    program: Any, tmp_path: Path
) -> None:
    (tmp_path / "page.md").write_text(page(RUN, row("2.4.1")))
    table = program.Table(torch_rows("2.15.0"), HEAD, tmp_path / "page.md", tmp_path / "page.log")
    assert table.takes(LATER, ["2.4.1"]) and not table.takes(OTHER, ["2.4.1"])
    assert table.takes(OTHER, [*RELEASES, "2.15.0", "torchtitan"])
    for each in program.tables("2.15.0"):
        run_of(each.page.read_text(), each.head)


def test_rows_are_of_the_releases_that_the_agent_names_and_run_tests_that_exist() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text()
    oldest, *_, last = sorted(
        map(Version, torch_rows(pinned(lock, ["torch"])[0].removeprefix("torch==")))
    )
    assert f"{oldest.major}.{oldest.minor} to {last.major}.{last.minor}" == TESTED
    rows = framework_rows("2.15.0")
    loose = [
        name
        for name, row in rows.items()
        if not row.packages or not all("==" in package for package in row.packages)
    ]
    assert not loose + [name for name, row in rows.items() if Version(row.torch) < oldest]
    paths = [argument for argument in AGENT_AND_LIBRARY if argument.startswith("tests/")]
    assert not [
        path
        for path in [*paths, *(row.tests[-1] for row in rows.values())]
        if not (ROOT / path).exists()
    ]
