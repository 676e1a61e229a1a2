"""What `kubectl epj drill` runs in a worker's container kills the training process, and nothing else."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from elastic_pytorch_client.training_processes import container_command

from tests.waiting import until
from tests.worker_image.agents import NEW_AGENT, Agent
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

# A script may have children that lead sessions of their own.
SCRIPT = """
import os, pathlib, subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("pid.part").write_text(str(os.getpid()))
pathlib.Path("pid.part").rename("pid")
time.sleep(600)
"""


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.long)])
def test_training_process_is_killed(
    start_method: str, operator: ScriptedOperator, agents: Callable[..., Agent], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    name = {"ELASTIC_PYTORCH_WORKER": f"w0-{uuid.uuid4().hex}"}  # other tests on this machine have workers, too
    agents("w0", f"--start-method={start_method}", tmp_path / "script.py", command=NEW_AGENT, **name)
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    until((tmp_path / "pid").exists)
    done = subprocess.run(
        [sys.executable, *container_command("kill")[1:]],
        env=os.environ | name,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert (done.stdout.strip(), done.stderr) == ((tmp_path / "pid").read_text(), "")
    operator.wait_for("failed", "w0")
    heard = operator.last("w0")
    assert heard is not None
    assert (heard.failure["signal"], heard.failure["pid"]) == ("SIGKILL", int(done.stdout))
