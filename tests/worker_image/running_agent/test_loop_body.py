"""What a loop does after `backward` belongs to its step, and what a script does at its end is done, however the group changes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

SCRIPT = SCRIPTS / "loop_body.py"
STEPS = 120
Agents = Callable[..., Agent]
IN_PROCESS = pytest.mark.parametrize("option", [(), ("--in-process",)], ids=["restarted", "in process"])
RESTARTED_TOO = pytest.mark.parametrize(
    "option", [pytest.param((), marks=pytest.mark.long), ("--in-process",)], ids=["restarted", "in process"]
)
ENVIRONMENT = {"USE_LIBUV": 0, "OMP_NUM_THREADS": 1, "ELASTIC_PYTORCH_REST_SECONDS": 10, "ELASTIC_PYTORCH_GRACE_SECONDS": 30}


def start(agents: Agents, operator: ScriptedOperator, *options: Any) -> None:
    for worker in ("w0", "w1"):
        agents(worker, SCRIPT, *options, **ENVIRONMENT)
    operator.wait_for("ready", "w0", "w1")
    operator.declare("w0", "w1")


def finish(operator: ScriptedOperator, events: Events, *workers: str) -> dict[str, Any]:
    operator.wait_for("succeeded", *workers)
    operator.end("complete")
    return events.all(what="done")[-1]


def written(folder: Path) -> list[int]:
    return sorted(int(line) for path in folder.glob("metrics-*") for line in path.read_text().splitlines())


@IN_PROCESS
def test_planned_change_leaves_out_nothing(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path, option: tuple[str, ...]
) -> None:
    start(agents, operator, *option)
    changes = 3
    for number in range(changes):
        events.until_step(20 + 25 * number, 2)
        operator.declare(*(("w1", "w0") if number % 2 == 0 else ("w0", "w1")), orderly=True)
    done = finish(operator, events, "w0", "w1")
    assert (done["averaged"], done["after"], done["seen"]) == (STEPS, STEPS, STEPS)
    steps = [event["step"] for event in events.all(what="step", worker="w0")]
    assert steps == list(range(1, STEPS + 1)), "no step is computed twice"
    assert [event["step"] for event in events.all(what="evaluated", worker="w0")] == [50, 100]
    assert written(tmp_path) == sorted(2 * list(range(1, STEPS + 1))), "no buffer is lost"
    groups = 2 * (changes + 1)
    assert len(events.all(what="finally")) == groups
    assert len(events.all(what="at exit")) == (2 if option else groups)


@RESTARTED_TOO
def test_kill_costs_the_step_at_hand_at_most(
    operator: ScriptedOperator, events: Events, agents: Agents, option: tuple[str, ...]
) -> None:
    start(agents, operator, *option)
    events.until_step(30, 2)
    os.kill(events.all(what="step", worker="w1")[-1]["pid"], signal.SIGKILL)
    operator.wait_for("failed", "w1")
    operator.declare("w0", "w1")
    done = finish(operator, events, "w0", "w1")
    assert (done["averaged"], done["after"], done["seen"]) == (STEPS, STEPS, STEPS)
    steps = [event["step"] for event in events.all(what="step", worker="w0")]
    assert len(steps) - STEPS <= 1
    assert sorted(set(steps)) == list(range(1, STEPS + 1))


@RESTARTED_TOO
def test_evaluation_of_one_rank_is_waited_for(
    operator: ScriptedOperator, events: Events, agents: Agents, option: tuple[str, ...]
) -> None:
    start(agents, operator, "--evaluation-seconds", 4, *option)
    events.until_step(49, 2)
    operator.declare("w0", "w1", orderly=True)
    done = finish(operator, events, "w0", "w1")
    assert (done["averaged"], done["seen"]) == (STEPS, STEPS)
    assert [event["step"] for event in events.all(what="evaluated", worker="w0")] == [50, 100]


def test_script_whose_end_takes_long_is_ended(operator: ScriptedOperator, events: Events, agents: Agents) -> None:
    start(agents, operator, "--stay-in-finally")
    events.until_step(20, 2)
    operator.declare("w0", "w1", orderly=True)
    done = finish(operator, events, "w0", "w1")
    assert (done["averaged"], done["seen"]) == (STEPS, STEPS)


@pytest.mark.parametrize(
    ("start_method", "option"),
    [
        pytest.param((), ("--in-process",), id="kept, warm"),
        pytest.param(("--start-method=spawn",), ("--in-process",), id="kept, cold", marks=pytest.mark.long),
        pytest.param(("--start-method=spawn",), (), id="ended, cold"),
    ],
)
def test_process_that_leaves_its_group_ends_as_a_script_does(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    start_method: tuple[str, ...],
    option: tuple[str, ...],
) -> None:
    """Its buffers are written and its exit handlers run, also if it was kept for a later group when the job ended."""
    started = [agents(worker, *start_method, SCRIPT, *option, **ENVIRONMENT) for worker in ("w0", "w1")]
    operator.wait_for("ready", "w0", "w1")
    operator.declare("w0", "w1")
    events.until_step(20, 2)
    operator.declare("w0", orderly=True)
    finish(operator, events, "w0")
    assert [agent.wait() for agent in started] == [0, 0]
    kept = [event["step"] for event in events.all(what="step", worker="w1")]
    assert written(tmp_path) == sorted([*range(1, STEPS + 1), *kept]), "no buffer is lost"
    assert len(events.all(what="at exit", worker="w1")) == 1
