"""Measures for how long training stands still when its group changes, with `in_process` and without, where a process takes 5 s to set up.

.venv/bin/python hack/in_process_pause.py gloo
.venv/bin/python hack/in_process_pause.py nccl_like

The agents are real, each with a loopback address of its own; rounds are declared as soon as the change is known. A pause is the time from
the last step that a rank of the old group has begun to the first one of the new group, in a pod that is in both.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.worker_image.agents import SCRIPTS, Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

STEPS = 15  # between two changes
LIMIT_SECONDS = 120
OPTIONS = ("--epochs", 1000, "--set-up-seconds", 5)
ENVIRONMENT: dict[str, Any] = {"USE_LIBUV": 0, "OMP_NUM_THREADS": 1}


class Training:
    """A job of three pods, whose group is changed from here."""

    def __init__(self, directory: Path, *options: Any) -> None:
        self.operator, self.events = ScriptedOperator(), Events(directory / "events")
        self.agents: dict[str, Agent] = {}
        self._directory, self._options = directory, (*OPTIONS, *options)
        for worker in ("w0", "w1", "w2"):
            self.add(worker)
        self.operator.declare("w0", "w1", "w2")
        self._wait(0)

    def add(self, worker: str) -> None:
        """Starts a pod, and waits until it is ready to be in a group."""
        script = SCRIPTS / "stateful.py"
        self.agents[worker] = Agent(worker, self.operator.url, self._directory, script, *self._options, **ENVIRONMENT)
        self.operator.wait_for("ready", worker)

    def change(self, *workers: str, orderly: bool = True) -> float:
        """Has the group formed of these pods; returns the pause of the second one in seconds."""
        before = max(event["generation"] for event in self.events.all(what="step"))
        self.operator.declare(*workers, orderly=orderly)
        self._wait(before)
        steps = self.events.all(what="step", worker=workers[1])
        old = max(event["at"] for event in steps if event["generation"] == before)
        return float(min(event["at"] for event in steps if event["generation"] > before) - old)

    def kill_process(self, worker: str) -> None:
        """Ends a worker's process, and waits until its agent has reported it."""
        os.kill(self.events.all(what="step", worker=worker)[-1]["pid"], signal.SIGKILL)
        self.operator.wait_for("failed", worker)

    def end(self) -> None:
        """Ends all pods."""
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        self.operator.go_away()

    def _wait(self, before: int) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while sum(event["generation"] > before for event in self.events.all(what="step")) < STEPS:
            assert time.monotonic() < deadline, self.events.all()[-3:]
            time.sleep(0.02)


def pauses(*options: str) -> dict[str, float]:
    """Returns the seconds that each change costs, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), *options)
        try:
            found = {"shrunk in order, three pods to two": training.change("w0", "w1")}
            found["grown by a pod that was in the group before"] = training.change("w0", "w1", "w2")
            training.agents["w2"].kill()
            found["a pod is lost"] = training.change("w0", "w1", orderly=False)
            training.add("w3")
            found["grown by a new pod"] = training.change("w0", "w1", "w3")
            training.kill_process("w3")
            found["a process is killed"] = training.change("w0", "w1", "w3", orderly=False)
            return found
        finally:
            training.end()


def main(backend: str) -> None:
    """Measures all changes, with a backend of torch.distributed."""
    restarted, in_process = pauses("--backend", backend), pauses("--backend", backend, "--in-process")
    table = Table("the group is changed", "restarted", "in_process", title=backend)
    for name, seconds in restarted.items():
        table.add_row(name, f"{seconds:.2f} s", f"{in_process[name]:.2f} s")
    Console().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
