"""Runs tests of the agent and the training library on several releases of torch.

The results go into a page and a log. Rows with a name (`lightning-oldest`) run the tests of an
adapter on a release of its framework; their table is in another page.

All rows of a table are of one commit, the last one that changed more than pages. A run of all rows
replaces the table, and a row that runs alone is written only into a table of the same commit. With
changed files, another Python, or arguments after `--`, which replace a row's own arguments of
pytest, the program only prints the result.
"""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from environment import (
    CPU_INDEX,
    index_answers,
    make_environment,
    pinned,
    python_release,
    torch_release,
)
from rows import MatrixRow, framework_rows, torch_rows
from table import FRAMEWORKS_HEAD, HEAD, Outcome, Row, Run, count, log_with_row, run_of, with_row

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HOME_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = HOME_CACHE / "elastic-pytorch-operator" / "matrix"
LOGS = ROOT / ".cluster" / "logs"
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


class Table(NamedTuple):
    rows: Mapping[str, MatrixRow]
    head: str
    page: Path
    log: Path

    def takes(self, run: Run, names: Sequence[str]) -> bool:
        """Whether all rows are of one commit after these are written."""
        written = run_of(self.page.read_text(), self.head)
        return set(self.rows) <= set(names) or written.commit == run.commit

    def write(self, run: Run, row: Row) -> None:
        log = self.log.read_text() if self.log.exists() else ""
        self.page.write_text(with_row(self.page.read_text(), self.head, run, row))
        self.log.write_text(log_with_row(log, self.head, run, row))


def tables(newest: str) -> tuple[Table, Table]:
    evidence, frameworks = DOCS / "evidence", DOCS / "use" / "frameworks.md"
    page, log = evidence / "compatibility.md", evidence / "compatibility.log"
    return (
        Table(torch_rows(newest), HEAD, page, log),
        Table(framework_rows(newest), FRAMEWORKS_HEAD, frameworks, evidence / "frameworks.log"),
    )


def parse_options(known: Mapping[str, MatrixRow], arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/matrix",
        usage="%(prog)s [options] [ROW ...] [-- PYTEST ...]",
        description=__doc__,
    )
    short = {name.rpartition(".")[0] if name[0].isdigit() else name: name for name in known}
    parser.add_argument(
        "rows",
        metavar="ROW",
        nargs="*",
        type=lambda text: short.get(text, text),
        default=list(known),
        help=f"{', '.join(short)}, or any X.Y.Z of torch (default: all that are named)",
    )
    parser.add_argument("--python", metavar="X.Y", help="in place of the Pythons of the rows")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.tests = tuple(arguments[end + 1 :])
    return options


def environments(
    rows: Mapping[str, MatrixRow], index: str | None
) -> Iterator[tuple[str, Future[Path]]]:
    """Yields each row's interpreter, while the next environment is made, and removes it then."""

    def begin(name: str) -> Future[Path]:
        log = LOGS / f"matrix-{name}-install.log"
        return installer.submit(make_environment, CACHE / name, ROOT, rows[name], index, log)

    names = list(rows)
    try:
        with ThreadPoolExecutor(max_workers=1) as installer:
            made = begin(names[0])
            for name, following in zip_longest(names, names[1:]):
                made.exception()  # waits
                ahead = begin(following) if following else made
                yield name, made
                made = ahead
                shutil.rmtree(CACHE / name, ignore_errors=True)
    finally:
        shutil.rmtree(CACHE, ignore_errors=True)


def run_tests(python: Path, name: str, tests: Sequence[str]) -> Outcome:
    log = LOGS / f"matrix-{name}.log"
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder, log.open("wb") as output:
        report = Path(folder) / "report.xml"
        folders = (f"--basetemp={folder}/tests", f"--junitxml={report}")
        options = ("-p", "no:cacheprovider", *folders, "--dist=worksteal")
        command = [str(python), "-m", "pytest", "--numprocesses=3", *options, *tests]
        # uv compiles nothing, and each of hundreds of processes would compile torch's modules.
        environment = {key: value for key, value in os.environ.items() if key != NO_BYTECODE}
        subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
        if not report.exists():
            raise RuntimeError(f"the tests have not run; see {log}")
        return count(report.read_text())


def row_of(python: Path, name: str, row: MatrixRow, outcome: Outcome) -> Row:
    releases = (torch_release(python), python_release(python))
    if row.packages:
        framework = ", ".join(row.packages).replace("==", " ")
        return Row((name, framework, *releases, str(outcome.agent + outcome.library)), outcome)
    return Row((*releases, str(outcome.agent), str(outcome.library)), outcome)


def run_now() -> Run | None:
    """Today's run at the last commit of more than pages; None: files differ from it."""
    beside = (".", ":(exclude)docs", ":(exclude)*.md")
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True)
    changes, commit = (
        git(["git", *command, "--", *beside]).stdout.strip()
        for command in (("status", "--porcelain"), ("log", "-1", "--abbrev=8", "--format=%h"))
    )
    return None if changes else Run(str(datetime.date.today()), commit)


def main() -> int:
    [torch] = pinned((ROOT / "requirements-dev.lock").read_text(), ["torch"])
    newest = torch.removeprefix("torch==")
    of_torch, of_frameworks = tables(newest)
    known = {**of_torch.rows, **of_frameworks.rows}
    options = parse_options(known, sys.argv[1:])
    rows = {name: known.get(name) or MatrixRow(name) for name in options.rows}
    if options.python:
        rows = {name: row._replace(python=options.python) for name, row in rows.items()}
    index = CPU_INDEX if index_answers() else None
    LOGS.mkdir(parents=True, exist_ok=True)
    began, failed = run_now(), False
    for name, made in environments(rows, index):
        row = rows[name]
        print(f"{name}: testing", flush=True)
        try:
            python = made.result()
            outcome = run_tests(python, name, options.tests or row.tests)
            result = row_of(python, name, row, outcome)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        print(f"{name}:\n{result.section()}", flush=True)
        failed = failed or bool(outcome.failed)
        table = of_frameworks if row.packages else of_torch
        as_named = row == table.rows.get(name) and not options.tests
        now = run_now()
        one_commit = now and began and now.commit == began.commit
        if now and as_named and one_commit and table.takes(now, options.rows):
            table.write(now, result)
        else:
            print(f"{name}: not written, as this is no run of all rows at one commit", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
