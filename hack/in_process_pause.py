"""Measures for how long training stands still when its group changes, where a process takes a while to set itself up.

A script is started again, or uses `in_process`; a new pod sets it up when its group exists, or before (`spec.prepare`).

.venv/bin/python hack/in_process_pause.py gloo         # the set-up takes 5 s
.venv/bin/python hack/in_process_pause.py gloo 60
.venv/bin/python hack/in_process_pause.py gloo 5 --sharded
.venv/bin/python hack/in_process_pause.py nccl_like
.venv/bin/python hack/in_process_pause.py nccl         # on a GPU, which all workers share

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
LIMIT_SECONDS = 300
ENVIRONMENT: dict[str, Any] = {"USE_LIBUV": 0, "OMP_NUM_THREADS": 1}


class Training:
    """A job of three pods, whose group is changed from here."""

    def __init__(self, directory: Path, *options: str, prepare: bool) -> None:
        self.operator, self.events = ScriptedOperator(), Events(directory / "events")
        self.agents: dict[str, Agent] = {}
        self._directory, self._options = directory, options
        self._environment = ENVIRONMENT | ({"ELASTIC_PYTORCH_PREPARE_SECONDS": LIMIT_SECONDS} if prepare else {})
        for worker in ("w0", "w1", "w2"):
            self.add(worker)
        self.operator.declare("w0", "w1", "w2")
        self._wait(0)

    def add(self, worker: str) -> None:
        """Starts a pod, and waits until it is ready to be in a group."""
        arguments = (SCRIPTS / "stateful.py", "--epochs", 1000, *self._options)
        self.agents[worker] = Agent(worker, self.operator.url, self._directory, *arguments, **self._environment)
        self.operator.wait_for("ready", worker, seconds=LIMIT_SECONDS)

    def change(self, *workers: str, orderly: bool = True) -> str:
        """Has the group formed of these pods; returns the pause of the second one."""
        before = max(event["generation"] for event in self.events.all(what="step"))
        self.operator.declare(*workers, orderly=orderly)
        self._wait(before)
        steps = self.events.all(what="step", worker=workers[1])
        old = max(event["at"] for event in steps if event["generation"] == before)
        return f"{min(event['at'] for event in steps if event['generation'] > before) - old:.2f} s"

    def close(self) -> None:
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


def pauses(*options: str, prepare: bool = False) -> dict[str, str]:
    """Returns the pause of each change, by the change's name."""
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), *options, prepare=prepare)
        try:
            found = {"shrunk in order, three pods to two": training.change("w0", "w1")}
            found["grown by a pod that was in the group before"] = training.change("w0", "w1", "w2")
            training.agents["w2"].kill()
            found["a pod is lost"] = training.change("w0", "w1", orderly=False)
            training.add("w3")
            found["grown by a new pod"] = training.change("w0", "w1", "w3")
            os.kill(training.events.all(what="step", worker="w3")[-1]["pid"], signal.SIGKILL)
            training.operator.wait_for("failed", "w3")
            apart = prepare and "--in-process" in options  # the operator's rule: its pod comes back when another one is set up
            found["a process is killed"] = training.change("w0", "w1", *(() if apart else ("w3",)), orderly=False)
            return found
        finally:
            training.close()


def main(backend: str, set_up_seconds: str = "5", *more: str) -> None:
    options = ("--backend", backend, "--set-up-seconds", set_up_seconds, *more)
    columns = {
        "started again": pauses(*options),
        "started again, prepare": pauses(*options, prepare=True),
        "in_process": pauses(*options, "--in-process"),
        "in_process, prepare": pauses(*options, "--in-process", prepare=True),
    }
    table = Table("the group is changed", *columns, title=f"{backend}, a set-up of {set_up_seconds} s")
    for name in columns["in_process"]:
        table.add_row(name, *(column[name] for column in columns.values()))
    Console().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
