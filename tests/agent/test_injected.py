"""The agent as it is brought into an image that has only torch: a folder, and nothing installed."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import python_of_operator  # noqa: F401 - leaves this module out
from agent.agents import Agent, Events
from agent.scripted_operator import ScriptedOperator
from elastic_pytorch_operator.agent_copy import copy_agent
from torch_features import needs_torchrun_handlers

pytestmark = pytest.mark.process

Start = Callable[..., Agent]

SCRIPT = """
import elastic_pytorch, os, sys
sys.path.insert(0, os.environ["SCRIPTS"])
from events import event
elastic_pytorch.report(step=1)
event("found", package=elastic_pytorch.__file__, path=os.environ["PYTHONPATH"], rank=os.environ["RANK"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "opt" / "elastic-pytorch"
    made.mkdir(parents=True)
    copy_agent(made, Path(__file__).parents[2] / "worker_image")
    for path in (*made.rglob("*"), made):
        path.chmod(path.stat().st_mode & ~0o222)  # as in the pod, where it is mounted read-only
    return made


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCRIPTS", str(Path(__file__).parent / "scripts"))
    path = tmp_path / "found.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_agent_starts_from_its_folder_and_scripts_find_the_package(
    operator: ScriptedOperator, agents: Start, events: Events, folder: Path, script: Path, start_method: str
) -> None:
    own = {"PYTHONPATH": "/image/has/this", "PET_START_METHOD": start_method}
    agent = agents("w0", script, command=[sys.executable, str(folder)], **own)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    operator.wait_for("succeeded", "w0")
    [found] = events.all(what="found")
    assert found["package"] == str(folder / "elastic_pytorch" / "__init__.py")
    assert found["path"] == f"{folder}:/image/has/this"
    operator.end("complete")
    assert agent.wait() == 0


@needs_torchrun_handlers
def test_torchrun_of_the_users_finds_the_handler_by_pythonpath(
    operator: ScriptedOperator, agents: Start, events: Events, folder: Path, script: Path
) -> None:
    torchrun = [str(Path(sys.executable).with_name("torchrun"))]
    joining = {"PET_RDZV_BACKEND": "elastic-pytorch", "PET_NNODES": "1:4", "PET_MAX_RESTARTS": 3, "PYTHONPATH": folder}
    agent = agents("w0", script, command=torchrun, ELASTIC_PYTORCH_CHECKPOINT_PATH=folder, **joining)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    operator.wait_for("succeeded", "w0")
    assert [found["package"] for found in events.all(what="found")] == [str(folder / "elastic_pytorch" / "__init__.py")]
    told = operator.last("w0")
    assert told is not None
    assert told.progress["checkpoints"] == 0, "it watches the folder, too"
    operator.end("complete")
    assert agent.wait() == 0


def test_python_is_taken_where_python3_has_no_torch(
    operator: ScriptedOperator, agents: Start, folder: Path, script: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    without_torch = [str(Path(sys.base_prefix) / "bin" / "python3"), "-S"]
    agent = agents("w0", script, command=[*without_torch, str(folder)], PATH=f"{python.parent}:{os.environ['PATH']}")
    operator.wait_for("ready", "w0")
    agent.signal()
    assert agent.wait() == 143


def test_old_python_is_named_in_the_termination_message(agents: Start, folder: Path, script: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 9, 18, 'final', 0)\n")
    agent = agents("w0", script, command=[sys.executable, str(folder)], PYTHONPATH=tmp_path / "old")
    assert agent.wait() == 2
    assert agent.termination_log.read_text() == (
        f"elastic-pytorch needs Python 3.10 or newer in the image: {sys.executable} is Python 3.9.18"
    )
