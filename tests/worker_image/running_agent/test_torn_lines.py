"""A killed process's last line, and the next one's first, are two lines of the pod's log."""

from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker_image.agents import Agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]

# The first process dies within a line, by itself or as it is told to; the second one writes a whole
# line.
SCRIPT = """
import os, pathlib, signal, sys, time

def say(text):
    for stream in (sys.stdout, sys.stderr):
        stream.write(text)
        stream.flush()

def leave(*_):
    say("first")
    os._exit(0)

died = pathlib.Path("died")
if died.exists():
    say("second\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
died.touch()
if sys.argv[1] == "by itself":
    say("first")
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("dies", "variables"),
    [
        ("by itself", {}),
        ("as it is told to", {}),
        pytest.param("by itself", {"PET_START_METHOD": "spawn"}, marks=pytest.mark.long),
        ("by itself", {"PET_TEE": "3"}),
    ],
    ids=["killed", "stopped", "cold", "tee"],
)
def test_next_process_does_not_write_behind_the_torn_line_of_the_one_before(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path, dies: str, variables: dict[str, Any]
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    agent = agents("w0", tmp_path / "script.py", dies, **variables)
    operator.begin("w0")
    if dies == "by itself":
        operator.wait_for("failed", "w0")
    else:
        until((tmp_path / "died").exists)
    operator.declare("w0")
    operator.complete("w0")
    assert agent.wait() == 0
    prefix = "[default0]:" if "PET_TEE" in variables else ""
    for stream, text in (("stdout", agent.out.read_text()), ("stderr", agent.text())):
        lines = text.splitlines()
        assert [line for line in lines if "first" in line or "second" in line] == [
            f"{prefix}first",
            f"{prefix}second",
        ], stream
        assert lines.count("") <= (stream == "stdout"), (
            "only of stdout does the agent not know whether its line has ended"
        )
