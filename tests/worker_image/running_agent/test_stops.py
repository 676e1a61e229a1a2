"""Workers with a handler of SIGTERM, stopped after a loss and in order.

Grace periods are far longer than the tests wait.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker_image.agents import SCRIPTS, Agents, Events, program
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

HANGS = SCRIPTS / "hangs.py"
LONG = {"ELASTIC_PYTORCH_GRACE_SECONDS": 600}


@pytest.mark.parametrize(
    ("start_method", "hangs", "waits", "handler"),
    [
        ("forkserver", "mutex", "queue", "save-in-c"),
        pytest.param("forkserver", "computation", "python", "save-in-c", marks=pytest.mark.long),
        pytest.param("spawn", "mutex", "queue", "save", marks=pytest.mark.long),
        pytest.param("spawn", "computation", "python", "save", marks=pytest.mark.long),
    ],
)
def test_after_a_loss_a_script_that_runs_has_its_time_and_one_that_hangs_is_not_waited_for(
    operator: ScriptedOperator,
    agents: Agents,
    events: Events,
    tmp_path: Path,
    start_method: str,
    hangs: str,
    waits: str,
    handler: str,
) -> None:
    trap = 'trap "echo the trap has run; exit 3" TERM'
    shell = program(tmp_path / "shell", f'{trap}\n{sys.executable} {HANGS} "$@"\nexit 5')
    python = (f"--start-method={start_method}", HANGS)
    cannot_run = agents("w0", *python, "--in", hangs, **LONG)
    below_a_shell = agents("w1", "--no-python", shell, "--in", hangs, **LONG)
    agents("w2", *python, "--in", waits, "--handler", handler, **LONG)
    agents("w3", *python, "--in", hangs, "--handler", "flag", "--until-told", **LONG)
    goes_on = agents("w4", *python, "--in", waits, "--handler", "flag", **LONG)
    _begin(operator, events, "w0", "w1", "w2", "w3", "w4")
    operator.declare("w0", "w1", "w2", "w3", "w4")
    (told,) = events.wait(what="told", worker="w4")
    time.sleep(4)
    os.kill(told["pid"], 0)
    for worker in ("w0", "w1", "w2", "w3"):
        events.wait(2, what="start", worker=worker)
    for agent in (cannot_run, below_a_shell):
        assert not events.all(what="told", worker=agent.worker)
        assert "cannot run its handler after the loss of a peer" in agent.text()
    assert "the trap has run" in below_a_shell.out.read_text()
    assert events.all(what="saved", worker="w2")
    assert events.all(what="told", worker="w3")
    assert len(events.all(what="start", worker="w4")) == 1 and "cannot run" not in goes_on.text()


@pytest.mark.parametrize("place", ["mutex", pytest.param("computation", marks=pytest.mark.long)])
def test_an_orderly_stop_gives_all_the_time_until_a_loss_is_known(
    operator: ScriptedOperator, agents: Agents, events: Events, place: str
) -> None:
    """By a newer round, by a peer that has stopped its workers, or after a drain."""
    agent = agents("w0", HANGS, "--in", place, **LONG)
    _begin(operator, events, "w0")
    operator.declare("w0", orderly=True)
    operator.wait_for("stopping", "w0")
    time.sleep(4)
    assert len(events.all(what="start")) == 1 and operator.last("w0").state == "stopping"
    number = operator.declare("w0")
    events.wait(2, what="start")
    operator.wait_for("running", "w0", number=number)
    time.sleep(0.5)
    operator.declare("w0", orderly=True)
    operator.wait_for("stopping", "w0")
    operator.left_rounds.add(number)
    events.wait(3, what="start")
    time.sleep(0.5)
    agent.signal(signal.SIGTERM)
    operator.wait_for("leaving", "w0")
    operator.declare("w0")
    assert agent.wait() == 143


def test_siblings_of_a_worker_that_has_failed_are_not_waited_for(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    agents("w0", "--nproc-per-node=2", HANGS, "--in", "mutex", "--first-fails", there, **LONG)
    operator.begin("w0")
    operator.wait_for("failed", "w0")
    # Or else rank 0 would fail again before rank 1 has begun.
    for file in there.iterdir():
        file.unlink()
    operator.declare("w0", orderly=True)  # no member is lost
    events.wait(4, what="start")


def test_a_handler_that_waits_for_a_peer_is_not_waited_for_once_the_peer_is_lost(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    agents("w0", HANGS, "--in", "python", "--group", "--handler", "barrier", **LONG)
    lost = agents("w1", HANGS, "--in", "python", "--group", "--handler", "save-in-c", **LONG)
    operator.begin("w0", "w1")
    events.wait(2, what="start")
    operator.declare("w0", "w1", orderly=True)
    events.wait(2, what="told")
    lost.kill()
    operator.declare("w0")
    events.wait(2, what="start", worker="w0")
    assert not events.all(what="saved", worker="w0")


@pytest.mark.long
@pytest.mark.parametrize("start", ["warm", "cold"])
def test_a_worker_that_outlives_sigkill_ends_its_agent(
    operator: ScriptedOperator, agents: Agents, events: Events, start: str
) -> None:
    how = ["--start-method=spawn"] if start == "cold" else []
    agent = agents("w0", *how, HANGS, "--in", "python", ELASTIC_PYTORCH_GRACE_SECONDS=1)
    _begin(operator, events, "w0")
    (worker,) = events.all(what="start")
    with kept_from_its_parent(worker["pid"]):
        operator.declare("w0")
        assert agent.wait() == 128 + signal.SIGKILL
    said = agent.termination_log.read_text()
    assert (
        said.startswith(f"worker process {worker['pid']} has not ended 20 s after SIGKILL")
        and said.strip() in agent.text()
    )
    assert "failed" not in operator.states("w0")
    assert len(events.all(what="start")) == 1


@contextlib.contextmanager
def kept_from_its_parent(pid: int) -> Iterator[None]:
    """Another process traces this one.

    Its parent does not see it end before the tracer has, as if it hung in the kernel.
    """
    # PTRACE_SEIZE.
    code = (
        "import ctypes, time; print(ctypes.CDLL(None).ptrace(0x4206, %d, 0, 0), flush=True); "
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code % pid], stdout=subprocess.PIPE, text=True
    ) as tracer:
        try:
            assert tracer.stdout is not None and tracer.stdout.readline() == "0\n"
            yield
        finally:
            tracer.kill()


def _begin(operator: ScriptedOperator, events: Events, *workers: str) -> None:
    operator.begin(*workers)
    events.wait(len(workers), what="start")
    time.sleep(0.5)  # from the event to where they hang
