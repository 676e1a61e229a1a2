import atexit
import gc
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import recorded_times
from tests.hypothesis_examples import PROFILES

# That the machine is busy is no failure.
for name, count in PROFILES.items():
    settings.register_profile(
        name, max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("gate")  # --hypothesis-profile replaces it before any test is imported

MARKS_OF_MODULE = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)
MARK = re.compile(r"pytest\.mark\.(\w+)")

# Torch reads it when it is imported. Several tests run side by side: the threads of one would wait
# in a busy loop for a core that another has, and small tensors would take a hundred times as long.
os.environ["OMP_NUM_THREADS"] = "1"

if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker of pytest-xdist inherits the environment
    # What a killed agent, and torch, leave in the folder for temporary files is deleted at the end;
    # pytest keeps its own for three runs. Here, as other modules note what the environment of the
    # tests is when they are imported.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="epo-tests-")
    # after that of multiprocessing, which is imported later
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the process for what tests start.

    Interrupts are not ignored, as a shell has it for what it runs in the background: all that tests
    start would ignore them, too.
    """
    gc.set_threshold(50_000)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A pytest that a test starts does not inherit the variable.
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if runs_tests and (path := os.environ.pop(recorded_times.VARIABLE, "")):
        config.pluginmanager.register(recorded_times.TimesRecorder(Path(path)))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Imports no module of which `-m "not A and not B"` selects no test: many take long."""
    if collection_path.suffix != ".py":
        return None
    terms = [
        term.removeprefix("not ")
        for term in config.option.markexpr.split(" and ")
        if term.startswith("not ")
    ]
    if " and ".join(f"not {term}" for term in terms) != config.option.markexpr:
        return None
    marks = MARKS_OF_MODULE.search(collection_path.read_text())
    return True if marks and not set(terms).isdisjoint(MARK.findall(marks[1])) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the tests that wait longest, for real agents: others have the cores meanwhile."""
    items.sort(key=lambda item: "running_agent" not in item.path.parts)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from searching the thousands of collected tests."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need a GPU are skipped without one."""
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU: torch.cuda.is_available() says that there is none")
