import os
import shlex
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker_image.agents import NEW_AGENT, SCRIPTS, Agents, Events, has_ended, program
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

HELPER = SCRIPTS / "helper.py"


def until_gone(begun: list[dict[str, Any]]) -> None:
    until(lambda: all(has_ended(event["helper"]) for event in begun), "the helpers' ends")


def test_helper_lives_until_the_script_has_saved(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    shell = program(tmp_path / "run.sh", f"trap : TERM\n{sys.executable} {HELPER}")
    ways = {
        "w0": [HELPER],
        "w1": ["--start-method=spawn", HELPER],
        "w2": ["--no-python", sys.executable, HELPER],
        "w3": ["--no-python", shell],
    }
    for worker, way in ways.items():
        agents(worker, *way)
    operator.begin(*ways)
    begun = events.wait(4, what="start")
    operator.declare(orderly=True)
    saved = events.wait(4, what="saved")
    assert {event["worker"]: event["helper_lives"] for event in saved} == dict.fromkeys(ways, True)
    until_gone(begun)


def test_whole_group_of_a_program_without_a_handler_is_stopped(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    shell = program(
        tmp_path / "run.sh", f"sleep 600 &\necho $! > {child}.new\nmv {child}.new {child}\nwait"
    )
    agents("w0", "--no-python", shell)
    operator.begin("w0")
    until(child.exists, "the shell's child")
    operator.declare(orderly=True)
    until(lambda: has_ended(int(child.read_text())), "the end of the shell's child")


def test_memory_that_a_start_has_left_by_name_is_free_for_the_next_one(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    """However the script was started: warm, cold, and as a program."""
    script, name = SCRIPTS / "named_memory.py", f"elastic_pytorch_test_{uuid.uuid4().hex}_"
    ways = {
        "w0": [script, name],
        "w1": ["--start-method=spawn", script, name],
        "w2": ["--no-python", sys.executable, script, name],
    }
    for worker, way in ways.items():
        agents(worker, *way)
    operator.wait_for("ready", *ways)
    for starts in (1, 2):
        operator.declare(*ways, orderly=starts == 2)
        events.wait(len(ways) * starts, what="created")
    operator.declare(orderly=True)
    until(
        lambda: not list(Path("/dev/shm").glob(f"{name}*")),
        "the end of what the last start has left",
    )


def test_helpers_that_have_left_the_session_of_a_killed_rank_end_before_the_next_start(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    """However the script was started: warm, cold, and as a program.

    What the container's own shell has started stays.
    """
    script, own = [HELPER, "--own-session"], tmp_path / "own"
    shell = (
        f"setsid sleep 600 & echo $! > {own}; "
        f"exec {shlex.join(NEW_AGENT)} --start-method=spawn {shlex.join(map(str, script))}"
    )
    ways = {"w0": script, "w2": ["--no-python", sys.executable, *script]}
    for worker, way in ways.items():
        agents(worker, *way)
    agents("w1", command=["sh", "-c", shell])
    workers = ("w0", "w1", "w2")
    operator.begin(*workers)
    begun = events.wait(3, what="start")
    for event in begun:
        os.kill(event["pid"], signal.SIGKILL)
    operator.wait_for("failed", *workers)
    operator.declare(*workers)
    again = events.wait(6, what="start")[3:]
    assert {event["worker"]: has_ended(event["helper"]) for event in begun} == dict.fromkeys(
        workers, True
    )
    assert not any(has_ended(event["helper"]) for event in again)
    assert not has_ended(int(own.read_text()))
    operator.declare(orderly=True)
    until_gone(again)
    os.kill(int(own.read_text()), signal.SIGKILL)
