"""Measures for how long training stands still when its group changes, where a process takes a while to set itself up.

A script is started again, or uses `in_process`; a new pod sets it up when its group exists, or before (`spec.prepare`).

.venv/bin/python hack/in_process_pause.py gloo         # the set-up takes 5 s
.venv/bin/python hack/in_process_pause.py gloo 60
.venv/bin/python hack/in_process_pause.py gloo 5 --sharded
.venv/bin/python hack/in_process_pause.py gloo 5 --units 3    # of two pods each, whose model is cut by tensors
.venv/bin/python hack/in_process_pause.py nccl_like
.venv/bin/python hack/in_process_pause.py nccl         # on a GPU, which all workers share

The agents are real, each with a loopback address of its own; rounds are declared as soon as the change is known. A pause is the time from
the last step that a rank of the old group has begun to the first one of the new group, in a pod that is in both. With units, the steps
that are done again are told, too.
"""

import os
import signal
import sys
import tempfile
import time
from functools import partial
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
    """A job of pods w0, w1, …, whose group is changed from here."""

    def __init__(
        self, directory: Path, *options: str, prepare: bool, pods: int = 3, script: str = "stateful.py", **environment: Any
    ) -> None:
        self.operator, self.events = ScriptedOperator(), Events(directory / "events")
        self.agents: dict[str, Agent] = {}
        self.old: list[dict[str, Any]] = []  # the steps of the group before the last change, and of the one after it
        self.new: list[dict[str, Any]] = []
        self._directory, self._arguments = directory, (SCRIPTS / script, "--epochs", 1000, *options)
        self._environment = ENVIRONMENT | ({"ELASTIC_PYTORCH_PREPARE_SECONDS": LIMIT_SECONDS} if prepare else {}) | environment
        workers = [f"w{number}" for number in range(pods)]
        self.add(*workers)
        self.operator.declare(*workers)
        self._wait()

    def add(self, *workers: str) -> None:
        """Starts pods, and waits until they are ready to be in a group."""
        for worker in workers:
            self.agents[worker] = Agent(worker, self.operator.url, self._directory, *self._arguments, **self._environment)
        self.operator.wait_for("ready", *workers, seconds=LIMIT_SECONDS)

    def kill(self, *workers: str) -> None:
        """Loses pods."""
        for worker in workers:
            self.agents[worker].kill()

    def change(self, *workers: str, orderly: bool = True) -> str:
        """Has the group formed of these pods; returns the pause of the second one."""
        before, since = _group(self.events.all(what="step")[-1]), time.time()
        self.operator.declare(*workers, orderly=orderly)
        self._wait(before, since)
        self.old, self.new = [], []
        for event in self.events.all(what="step"):
            (self.old if _group(event) == before else self.new if event["at"] > since else []).append(event)
        end = max(event["at"] for event in self.old if event["worker"] == workers[1])
        return f"{min(event['at'] for event in self.new if event['worker'] == workers[1]) - end:.2f} s"

    def repeated(self) -> int:
        """How many steps the newest group has done again, of those that all members of the one before have begun."""
        begun: dict[str, int] = {}
        for event in self.old:
            begun[event["worker"]] = max(begun.get(event["worker"], 0), event["step"])
        first: int = min(event["step"] for event in self.new)
        return max(0, min(begun.values()) + 1 - first)

    def close(self) -> None:
        """Ends all pods."""
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        self.operator.go_away()

    def _wait(self, before: tuple[int, int] = (0, 0), since: float = 0.0) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while sum(event["at"] > since and _group(event) != before for event in self.events.all(what="step")) < STEPS:
            assert time.monotonic() < deadline, self.events.all()[-3:]
            time.sleep(0.02)


def _group(event: dict[str, Any]) -> tuple[int, int]:
    """Tells a group from the one before: a generation of which nothing was kept has the same number as the next."""
    return event["generation"], event["WORLD_SIZE"]


def pauses(*options: str, prepare: bool = False) -> dict[str, str]:
    """Returns the pause of each change, by the change's name."""
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), *options, prepare=prepare)
        try:
            found = {"shrunk in order, three pods to two": training.change("w0", "w1")}
            found["grown by a pod that was in the group before"] = training.change("w0", "w1", "w2")
            training.kill("w2")
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


def unit_pauses(units: int, *options: str, prepare: bool = False) -> dict[str, str]:
    """The same for units of two pods each: a tensor-parallel model, sharded over the units."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"w{number}" for number in range(2 * units)]
        environment = {"ELASTIC_PYTORCH_UNIT_REPLICAS": 2, "ELASTIC_PYTORCH_REST_SECONDS": 10}
        training = Training(Path(folder), *options, prepare=prepare, pods=2 * units, script="units.py", **environment)

        def change(*workers: str, orderly: bool = True) -> str:
            pause = training.change(*workers, orderly=orderly)
            return f"{pause}, {training.repeated()} again"

        try:
            found = {"a unit leaves in order": change(*names[:-2])}
            found["it comes back"] = change(*names)
            training.kill(names[-1])
            found["a pod is lost, its unit leaves"] = change(*names[:-2], orderly=False)
            training.kill(names[-2])
            fresh = ["w8", "w9"]
            training.add(*fresh)
            found["grown by a new unit"] = change(*names[:-2], *fresh)
            return found
        finally:
            training.close()


def main(backend: str, set_up_seconds: str = "5", *more: str) -> None:
    measure, options = pauses, ("--backend", backend, "--set-up-seconds", set_up_seconds, *more)
    if "--units" in more:
        measure, options = partial(unit_pauses, int(more[more.index("--units") + 1])), ("--set-up-seconds", set_up_seconds)
    columns = {
        "started again": measure(*options),
        "started again, prepare": measure(*options, prepare=True),
        "in_process": measure(*options, "--in-process"),
        "in_process, prepare": measure(*options, "--in-process", prepare=True),
    }
    table = Table("the group is changed", *columns, title=f"{backend}, a set-up of {set_up_seconds} s")
    for name in columns["in_process"]:
        table.add_row(name, *(column[name] for column in columns.values()))
    Console().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
