"""Whatever scripts and cleaners remove in the shared temporary folder, training goes on."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from tests.worker_image.agents import Agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


# Each run empties the folder first, and later ones remove it. Only then a run connects to the
# agent, reports, and passes tensors on between processes. The last one makes a file of the folder
# instead.
SCRIPT = """
import contextlib, os, shutil, sys, torch
from pathlib import Path
folder, run = Path(os.environ["TMPDIR"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for path in list(folder.iterdir()):
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
if run > 0:
    shutil.rmtree(folder, ignore_errors=True)
if run == 3:
    while not folder.is_file():  # the agent may make it again at any moment
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.write_text("no folder")
    sys.exit("the folder is a file now")
from elastic_pytorch import report
from elastic_pytorch.pod.client import PodClient
link = PodClient.connect()
assert link.fetch("nothing") is None
folder.mkdir(exist_ok=True)  # as Python's own tempfile needs it in a data loader
loader = torch.utils.data.DataLoader(range(4), num_workers=1)
assert [batch.item() for batch in loader] == [0, 1, 2, 3]
while not Path(sys.argv[1], f"go{run}").exists():
    report(step=10 + run)
raise ValueError(f"end of run {run}")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    # short: a socket's path has 107 characters at most
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        temporary = Path(made, "tmp")
        temporary.mkdir()
        yield temporary


@pytest.fixture
def script(tmp_path: Path) -> Path:
    written = tmp_path / "train.py"
    written.write_text(SCRIPT)
    return written


def told_step(operator: ScriptedOperator) -> int | None:
    return (operator.last("w0").body.get("progress") or {}).get("step")


def test_emptied_temporary_folder_costs_nothing_and_a_lost_one_the_pod_but_not_the_job(
    operator: ScriptedOperator,
    agents: Agents,
    script: Path,
    tmp_path: Path,
    folder: Path,
    start_method: str,
) -> None:
    agent = agents("w0", f"--start-method={start_method}", script, tmp_path, TMPDIR=folder)
    operator.wait_for("ready", "w0")
    for run in range(3):
        number = operator.declare("w0")
        until(lambda step=10 + run: told_step(operator) == step)
        (tmp_path / f"go{run}").touch()
        operator.wait_for("failed", "w0", number=number)
        failure = operator.last("w0").failure
        assert failure["message"] == f"ValueError: end of run {run}"
        assert "raise ValueError" in failure["traceback"]
    number = operator.declare("w0")
    operator.wait_for("failed", "w0", number=number)
    operator.declare("w0")
    assert agent.wait() == 128 + signal.SIGKILL
    assert str(folder) in agent.termination_log.read_text()
    failures = {heard.failure["message"] for heard in operator.heard if heard.body.get("failure")}
    failures -= {f"ValueError: end of run {run}" for run in range(3)}
    assert all("file now" in message for message in failures), (
        "the script's own failures are the only ones"
    )
    assert failures
