"""A script finds in a warm worker, forked from a used process, what a new Python has."""

import json
from pathlib import Path

import pytest

from tests.worker_image.agents import SCRIPTS, Agents, python_path
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


def test_state_of_a_warm_process_is_that_of_a_new_one(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    found = {worker: tmp_path / f"{worker}.json" for worker in ("w0", "w1")}
    agents("w0", SCRIPTS / "process_state.py", found["w0"])
    agents("w1", "--start-method=spawn", SCRIPTS / "process_state.py", found["w1"])
    operator.begin("w0", "w1")
    operator.wait_for("succeeded", "w0", "w1")
    warm, cold = (json.loads(found[worker].read_text()) for worker in ("w0", "w1"))
    unlike = {name: (warm[name], cold[name]) for name in cold if warm[name] != cold[name]}
    assert unlike == {}


def test_folders_that_come_after_the_agents_start(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    """A volume's folder of modules, and one for temporary files that the script itself names."""
    script, modules, own = tmp_path / "train.py", tmp_path / "modules", tmp_path / "own"
    script.write_text(
        "import os, sys, tempfile\n"
        "os.environ['TMPDIR'] = sys.argv[1]\n"
        "assert tempfile.gettempdir() == sys.argv[1], tempfile.gettempdir()\n"
        "import late_module\n"
    )
    agents("w0", script, own, PYTHONPATH=python_path(modules))
    operator.wait_for("ready", "w0")
    own.mkdir()
    modules.mkdir()
    (modules / "late_module.py").touch()
    operator.declare("w0")
    operator.wait_for("succeeded", "w0")
