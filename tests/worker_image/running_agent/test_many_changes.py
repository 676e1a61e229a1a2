"""A loop that averages, counts, evaluates and writes, through 100 planned changes and 50 kills."""

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker_image.agents import Agents, Events
from tests.worker_image.running_agent.test_loop_body import ENVIRONMENT, SCRIPT, written
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.long]

WORKERS = ("w0", "w1", "w2")
CHANGES, KILLS = 100, 50
APART, STEPS_EACH = 6, 40  # between two of them at least, and on a machine that notices late
GROUP_SECONDS = 600.0


class Training:
    """The loop in up to three agents."""

    def __init__(
        self, operator: ScriptedOperator, events: Events, agents: Agents, steps: int, *options: Any
    ) -> None:
        self.operator, self.events = operator, events
        self._agents = [
            agents(worker, SCRIPT, "--steps", steps, *options, **ENVIRONMENT) for worker in WORKERS
        ]
        operator.wait_for("ready", *WORKERS)
        self.members: tuple[str, ...] = WORKERS
        self.newest_step, self.pids, self._place = 0, dict[str, int](), 0
        self.change(*WORKERS)

    def change(self, *members: str, orderly: bool = False) -> None:
        """Declares the next group, and waits until it has done some steps."""
        self.members = members
        # The agents have said that they run in it: the next store is at another port.
        self.operator.wait_for(
            "running", *members, number=self.operator.declare(*members, orderly=orderly)
        )
        self._read()
        enough = self.newest_step + APART
        until(
            lambda: self._read() >= enough,
            lambda: f"step {enough} of {self.members}: {self.newest_step}",
        )

    def _read(self) -> int:
        """The newest step; only what has been written since the last call is read."""
        with self.events.path.open() as file:
            file.seek(self._place)
            for line in file:
                if not line.endswith("\n"):
                    break
                self._place += len(line)
                event = json.loads(line)
                if event["what"] == "step" and event["WORLD_SIZE"] == len(self.members):
                    self.newest_step = max(self.newest_step, event["step"])
                    self.pids[event["worker"]] = event["pid"]
        return self.newest_step

    def finish(self) -> dict[str, Any]:
        self.operator.wait_for("succeeded", *self.members, seconds=GROUP_SECONDS)
        self.operator.end("complete")
        # Also of a worker that the last group left out, whose process may be kept for a later one.
        for agent in self._agents:
            agent.wait()
        return self.events.all(what="done")[-1]

    def computed(self) -> list[int]:
        """The steps that rank 0 has computed, in their order."""
        return [event["step"] for event in self.events.all(what="step", RANK=0)]


def test_hundred_planned_changes_leave_out_and_repeat_nothing(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    option: tuple[str, ...],
) -> None:
    steps = CHANGES * STEPS_EACH
    training = Training(operator, events, agents, steps, *option)
    chance = random.Random(41)
    for _ in range(CHANGES):
        # No operator replaces all members of a group at once.
        stays = chance.choice(training.members)
        others = [worker for worker in WORKERS if worker != stays]
        members = [stays, *chance.sample(others, chance.randint(0, len(others)))]
        chance.shuffle(members)
        training.change(*members, orderly=True)
    assert training.newest_step < steps, "all of them came before the end"
    done = training.finish()
    assert (done["averaged"], done["seen"]) == (steps, steps)
    assert training.computed() == list(range(1, steps + 1))
    assert sorted({event["step"] for event in events.all(what="evaluated")}) == list(
        range(50, steps + 1, 50)
    )
    assert written(tmp_path) == sorted(event["step"] for event in events.all(what="step")), (
        "one line of each rank for each of its steps"
    )


def test_fifty_kills_cost_the_step_at_hand_each(
    operator: ScriptedOperator, events: Events, agents: Agents, option: tuple[str, ...]
) -> None:
    steps = KILLS * STEPS_EACH
    training = Training(operator, events, agents, steps, *option)
    chance = random.Random(42)
    for _ in range(KILLS):
        victim = chance.choice(WORKERS)
        os.kill(training.pids[victim], signal.SIGKILL)
        operator.wait_for("failed", victim, seconds=GROUP_SECONDS)
        training.change(*WORKERS)
    assert training.newest_step < steps, "all of them came before the end"
    done = training.finish()
    assert (done["averaged"], done["seen"]) == (steps, steps)
    computed = training.computed()
    assert sorted(set(computed)) == list(range(1, steps + 1))
    assert len(computed) - steps <= KILLS
