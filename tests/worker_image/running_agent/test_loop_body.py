"""A loop's body belongs to its step, and a script does its end, however the group changes."""

from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agent, Agents, Events
from tests.worker_image.running_agent.test_state_changes import ENVIRONMENT
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

SCRIPT = SCRIPTS / "loop_body.py"
STEPS = 120


def start(
    agents: Agents,
    operator: ScriptedOperator,
    *options: Any,
    start_method: str = "forkserver",
    **environment: Any,
) -> list[Agent]:
    arguments, variables = (
        (f"--start-method={start_method}", SCRIPT, *options),
        ENVIRONMENT | environment,
    )
    started = [agents(worker, *arguments, **variables) for worker in ("w0", "w1")]
    operator.begin("w0", "w1")
    return started


def finish(operator: ScriptedOperator, events: Events, *workers: str) -> dict[str, Any]:
    operator.complete(*workers)
    return events.all(what="done")[-1]


def written(folder: Path) -> list[int]:
    return sorted(
        int(line) for path in folder.glob("metrics-*") for line in path.read_text().splitlines()
    )


def test_planned_changes_leave_out_nothing(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    option: tuple[str, ...],
    start_method: str,
) -> None:
    """One rank's evaluation is waited for, and a process that leaves ends as a script does."""
    started = start(agents, operator, "--evaluation-seconds", 3, *option, start_method=start_method)
    for step, workers in ((15, ("w1", "w0")), (30, ("w0", "w1")), (50, ("w1", "w0"))):
        events.until_step(step, 2)
        operator.declare(*workers, orderly=True)
    events.until_step(70, 2)
    operator.declare("w0", orderly=True)
    done = finish(operator, events, "w0")
    assert [agent.wait() for agent in started] == [0, 0]
    assert (done["averaged"], done["seen"]) == (STEPS, STEPS)
    steps, of_the_other = (
        [event["step"] for event in events.all(what="step", worker=worker)]
        for worker in ("w0", "w1")
    )
    assert steps == list(range(1, STEPS + 1)), "no step is computed twice"
    assert of_the_other == list(range(1, len(of_the_other) + 1))
    assert [event["step"] for event in events.all(what="evaluated", worker="w0")] == [50, 100]
    assert written(tmp_path) == sorted(steps + of_the_other), "no buffer is lost"
    groups = 4 * 2 + 1
    assert len(events.all(what="finally")) == groups
    assert len(events.all(what="at exit")) == (2 if option else groups)


def test_kill_costs_the_step_at_hand_at_most(
    operator: ScriptedOperator, events: Events, agents: Agents, shown_in_process: tuple[str, ...]
) -> None:
    start(agents, operator, *shown_in_process)
    events.until_step(30, 2)
    events.kill("w1")
    operator.wait_for("failed", "w1")
    operator.declare("w0", "w1")
    done = finish(operator, events, "w0", "w1")
    assert (done["averaged"], done["seen"]) == (STEPS, STEPS)
    steps = [event["step"] for event in events.all(what="step", worker="w0")]
    assert len(steps) - STEPS <= 1
    assert sorted(set(steps)) == list(range(1, STEPS + 1))


def test_script_whose_end_takes_long_is_ended(
    operator: ScriptedOperator, events: Events, agents: Agents
) -> None:
    start(agents, operator, "--stay-in-finally", ELASTIC_PYTORCH_GRACE_SECONDS=4)
    events.until_step(20, 2)
    operator.declare("w0", "w1", orderly=True)
    done = finish(operator, events, "w0", "w1")
    assert (done["averaged"], done["seen"]) == (STEPS, STEPS)
