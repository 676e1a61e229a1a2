import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agent, Agents, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

SCRIPT = SCRIPTS / "prepares.py"
ENVIRONMENT = {
    "USE_LIBUV": 0,
    "ELASTIC_PYTORCH_REST_SECONDS": 10,
    "ELASTIC_PYTORCH_PREPARE_SECONDS": 600,
}


def start(agents: Agents, *options: Any, worker: str = "w0", **environment: Any) -> Agent:
    return agents(worker, SCRIPT, *options, **(ENVIRONMENT | environment))


def test_newcomer_sets_itself_up_while_the_group_trains(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    shown_in_process: tuple[str, ...],
) -> None:
    go = tmp_path / "go"
    shared = (*shown_in_process, "--world", 2, "--steps", 60)
    start(agents, *shared)
    start(agents, *shared, "--until", go, worker="w1")
    operator.wait_for("ready", "w0")
    [begun] = events.wait(what="set-up", worker="w1")
    operator.declare("w0")
    assert begun["names"] == ["LOCAL_RANK", "LOCAL_WORLD_SIZE"]
    assert "RANK" not in begun
    seen = len(events.all(what="step", worker="w0"))
    events.wait(seen + 3, what="step", worker="w0")  # nothing waits for it
    go.touch()
    operator.wait_for("ready", "w1")
    assert operator.states("w1") == ["preparing", "ready"]
    operator.declare("w0", "w1", orderly=True)
    operator.complete("w0", "w1")
    [done] = events.wait(what="done", worker="w1")
    assert (done["RANK"], done["WORLD_SIZE"]) == (1, 2)
    assert done["step"] >= 60
    assert events.processes(worker="w1") == 1, "its process is the one that was set up"
    steps = [event["step"] for event in events.all(what="step", worker="w0")]
    assert steps == list(range(1, done["step"] + 1)), "no step is lost"


def test_killed_process_is_set_up_again_while_the_others_go_on(
    operator: ScriptedOperator, events: Events, agents: Agents
) -> None:
    for worker in ("w0", "w1"):
        start(agents, "--in-process", "--world", 2, "--steps", 60, worker=worker)
    operator.begin("w0", "w1")
    events.until_step(5, 2)
    events.kill("w1")
    operator.wait_for("failed", "w1")
    operator.declare("w0")
    operator.wait_for("ready", "w1")
    assert operator.states("w1")[-3:] == ["failed", "preparing", "ready"]
    assert operator.last("w0").keepsProcesses
    events.wait(what="group", worker="w0", size=1)
    operator.declare("w0", "w1", orderly=True)
    operator.complete("w0", "w1")
    steps = [event["step"] for event in events.all(what="step", worker="w0")]
    [done] = events.wait(what="done", worker="w0")
    assert done["step"] >= 60
    assert sorted(set(steps)) == list(range(1, done["step"] + 1))
    assert len(steps) <= done["step"] + 1
    assert events.processes(worker="w0") == 1


def test_program_that_does_not_prepare_starts_when_its_group_exists(
    operator: ScriptedOperator, agents: Agents
) -> None:
    agent = agents(
        "w0", "--no-python", "python3", "-c", "import os; print(os.environ['RANK'])", **ENVIRONMENT
    )
    operator.begin("w0")
    operator.complete("w0")
    assert agent.wait() == 0
    assert "this program starts when its group exists" in agent.text()


FAILURES = {  # how a set-up fails, and words of the message
    "raise": "RuntimeError: the data set is not there",
    "exit": "7",
    "leave": "local rank 0 has ended its process with exit code 0 before it had joined a group",
}


def test_failure_ends_the_pod_of_the_newcomer(operator: ScriptedOperator, agents: Agents) -> None:
    started = {
        start(agents, "--fail", fail, worker=f"w{i}"): words
        for i, (fail, words) in enumerate(FAILURES.items())
    }
    for agent, words in started.items():
        assert agent.wait() == 1
        heard = operator.last(agent.worker)
        assert (heard.state, heard.round) == ("failed", 0)
        assert words in agent.termination_log.read_text()


def test_set_up_that_takes_too_long_is_told_with_its_stack(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path
) -> None:
    agent = start(agents, "--until", tmp_path / "never", ELASTIC_PYTORCH_PREPARE_SECONDS=3)
    assert agent.wait() == 1
    assert (
        "local rank 0 was not ready to join a group within spec.prepare.timeoutSeconds (3)"
        in agent.termination_log.read_text()
    )
    assert "prepares.py" in agent.text(), "its stack is in the log"


def test_prepared_worker_that_dies_before_it_has_a_group_ends_its_pod(
    operator: ScriptedOperator, events: Events, agents: Agents, shown_in_process: tuple[str, ...]
) -> None:
    agent = start(agents, *shown_in_process)
    operator.wait_for("ready", "w0")
    os.kill(events.all(what="set up")[-1]["pid"], signal.SIGKILL)
    assert agent.wait() == 1
    assert "SIGKILL" in agent.termination_log.read_text()


@pytest.mark.parametrize(
    ("option", "state"),
    [
        ((), "preparing"),
        (("--in-process",), "ready"),
        pytest.param((), "ready", marks=pytest.mark.long),
        pytest.param(("--in-process",), "preparing", marks=pytest.mark.long),
    ],
)
def test_leaving_ends_a_worker_without_a_group(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    option: tuple[str, ...],
    state: str,
) -> None:
    agent = start(
        agents, *option, *(("--until", tmp_path / "never") if state == "preparing" else ())
    )
    operator.wait_for(state, "w0")
    events.wait(what="set-up" if state == "preparing" else "set up")
    agent.signal()
    assert agent.wait() == 128 + signal.SIGTERM


def test_script_that_needs_nothing_of_its_group_is_a_part_of_it(
    operator: ScriptedOperator, events: Events, agents: Agents
) -> None:
    agent = start(agents, "--no-group")
    operator.wait_for("ready", "w0")
    [event] = events.all(what="set up")
    operator.declare("w0")
    operator.complete("w0")
    assert agent.wait() == 0
    assert "RANK" not in event
