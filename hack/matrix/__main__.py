"""Runs the tests of the agent and of the training library on several releases of torch, and writes what works into a page.

Rows with a name (`lightning-oldest`) run the tests of an adapter on a release of its framework. Their table is in another page.

Each release gets an environment of its own, which is removed after its run: PyPI's torch takes 5 GB with its CUDA libraries. The page keeps
the rows of the releases that are not run this time. Arguments after `--` go to pytest, in place of the folder of all these tests. Then the
result is printed, and the page stays as it is.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from environment import CPU_INDEX, ask, index_answers, install, install_framework, pinned, python_release, virtual_environment
from frameworks import FRAMEWORKS, FrameworkRow
from table import Counts, FrameworkOutcome, Row, count, with_framework_rows, with_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence" / "compatibility.md"
FRAMEWORKS_PAGE = ROOT / "docs" / "use" / "frameworks.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elastic-pytorch-operator" / "matrix"
LOGS = ROOT / ".cluster" / "logs"
# The last patch of each; the newest is the lock file's.
RELEASES = ("2.4.1", "2.5.1", "2.6.0", "2.8.0", "2.10.0", "2.13.0")
TESTS = ("tests/worker_image",)


def parse_options(newest: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/matrix", usage="%(prog)s [options] [X.Y ...] [-- PYTEST ...]", description=__doc__
    )
    known = {release.rpartition(".")[0]: release for release in (*RELEASES, newest)}
    about = (
        f"of torch: {', '.join(known)}, or any X.Y.Z; or rows by name: {', '.join(FRAMEWORKS)} (default: all that are named)"
    )
    default = [*known.values(), *FRAMEWORKS]
    parser.add_argument(
        "releases", metavar="X.Y", nargs="*", type=lambda text: known.get(text, text), default=default, help=about
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="of pytest (default: %(default)s)")
    parser.add_argument("--index", default=CPU_INDEX, help="where torch's CPU wheels are, else PyPI's (default: %(default)s)")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.tests = tuple(arguments[end + 1 :])
    return options


def run_tests(python: Path, name: str, processes: int, tests: Sequence[str]) -> Counts:
    """Returns the outcome of the tests, which are arguments for pytest, in an environment. Their output goes to a log file."""
    log = LOGS / f"matrix-{name}.log"
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder, log.open("wb") as output:
        report = Path(folder) / "report.xml"
        options = [
            "-m",
            "not e2e and not gpu",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/tests",
            f"--junitxml={report}",
        ]
        command = [
            str(python),
            "-m",
            "pytest",
            f"--numprocesses={processes}",
            "--dist=worksteal",
            *options,
            *tests,
        ]
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
        if not report.exists():
            raise RuntimeError(f"the tests have not run; see {log}")
        return count(report.read_text())


def torch_release(python: Path) -> str:
    return ask(python, "import torch; print(torch.__version__)")


def run_at() -> str:
    return f"{datetime.date.today()}, {commit()}"


def run_torch(python: Path, name: str, options: argparse.Namespace) -> Row:
    """Runs the tests of the agent and the library, and writes their row unless only some were asked for."""
    counts = run_tests(python, name, options.processes, options.tests or TESTS)
    row = Row(torch_release(python), python_release(python), *counts, run=run_at())
    if not options.tests:
        PAGE.write_text(with_rows(PAGE.read_text(), [row]))
    return row


def run_framework(python: Path, name: str, framework: FrameworkRow, options: argparse.Namespace) -> FrameworkOutcome:
    """Runs the tests of an adapter, and writes their row unless only some were asked for."""
    agent, library, failed, skipped = run_tests(python, name, options.processes, options.tests or (framework.tests,))
    packages = ", ".join(framework.packages).replace("==", " ")
    row = FrameworkOutcome(
        name, packages, torch_release(python), python_release(python), agent + library, failed, skipped, run_at()
    )
    if not options.tests:
        FRAMEWORKS_PAGE.write_text(with_framework_rows(FRAMEWORKS_PAGE.read_text(), [row]))
    return row


def commit() -> str:
    """The commit that is checked out, with a plus if files differ from it, other than the pages that this program writes."""
    head = ["git", "rev-parse", "--short=7", "HEAD"]
    pages = [f":(exclude){page.relative_to(ROOT)}" for page in (PAGE, FRAMEWORKS_PAGE)]
    changes = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", *pages]
    revision, changed = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        for command in (head, changes)
    )
    return revision + ("+" if changed else "")


def main() -> int:
    lock = (ROOT / "requirements-dev.lock").read_text()
    newest = pinned(lock, ["torch"])[0].removeprefix("torch==")
    options = parse_options(newest, sys.argv[1:])
    index = options.index if index_answers(options.index) else None
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = False
    for release in options.releases:
        framework = FRAMEWORKS.get(release)
        name = f"torch-{release}-{Path(options.python).name}" if framework is None else release
        print(f"{name}: installing", flush=True)
        try:
            with virtual_environment(CACHE / name, options.python) as python:
                log = LOGS / f"matrix-{name}-install.log"
                torch = release if framework is None else framework.torch or newest
                install(python, ROOT, torch, index, log)
                if framework is not None:
                    install_framework(python, framework.packages, torch, log)
                print(f"{name}: testing", flush=True)
                row = run_torch(python, name, options) if framework is None else run_framework(python, name, framework, options)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{name}: {row.text()}", flush=True)
        failed = failed or bool(row.failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
