"""What keeps an agent from starting workers never counts as the script's failure."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_pytorch.stopping.stacks import children

from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.agents import Agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


SCRIPT = """
import json, os, sys, tempfile
from pathlib import Path
found = [os.environ["TMPDIR"], tempfile.gettempdir()]
Path(sys.argv[1]).write_text(json.dumps(found))
"""


def test_temporary_folder_that_holds_no_sockets(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    """Its path is too long for a socket's.

    The agent finds another place, and leaves the folder to the script.
    """
    script, found = tmp_path / "train.py", tmp_path / "found"
    script.write_text(SCRIPT)
    long = tmp_path / ("t" * 90)
    long.mkdir()
    agent = agents("w0", script, found, TMPDIR=long)
    operator.begin("w0")
    operator.wait_for("succeeded", "w0")
    assert json.loads(found.read_text()) == [str(long), str(long)]
    assert agent.text().count(f"as these cannot hold them: {long} (") == 1


def test_no_temporary_folder_at_all(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "elastic_pytorch.agent", "train.py"],
        check=False,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_SECONDS,
        # No file can hold a byte, as on a full disk.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert ended.returncode == 128 + signal.SIGKILL
    assert "set TMPDIR to a folder that can" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_folder_of_the_logs_cannot_be_written(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    agent = agents("w0", "--log-dir=/proc/logs", tmp_path / "train.py")
    assert agent.wait() == 2
    assert agent.termination_log.read_text().startswith(
        "the folder of the logs (--log-dir) is /proc/logs, which cannot be written: "
    )


def test_limit_of_open_files(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path, start_method: str
) -> None:
    """Reached in the process that starts the workers: the agent, or the one it forks from."""
    script, go = tmp_path / "train.py", tmp_path / "go"
    script.write_text(
        f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        "raise ValueError(1)\n"
    )
    agent = agents("w0", f"--start-method={start_method}", script)
    number = operator.begin("w0")
    until(lambda: "workers started in" in agent.text())
    starter = agent.process.pid
    if start_method == "forkserver":
        starter = next(pid for pid in children(agent.process.pid) if children(pid))
    open_now = max(int(path.name) for path in Path(f"/proc/{starter}/fd").iterdir())
    _, hard = resource.prlimit(starter, resource.RLIMIT_NOFILE)
    go.touch()
    operator.wait_for("failed", "w0", number=number)
    resource.prlimit(
        starter, resource.RLIMIT_NOFILE, (5 if start_method == "forkserver" else open_now, hard)
    )
    operator.declare("w0")
    assert agent.wait() == 128 + signal.SIGKILL
    assert "no worker can be started" in agent.termination_log.read_text()
    failures = {heard.failure["message"] for heard in operator.heard if heard.body.get("failure")}
    assert failures == {"ValueError: 1"}, "the script's own failure is the only one"
