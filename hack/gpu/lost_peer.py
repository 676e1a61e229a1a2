"""Measures what a lost peer costs the workers that are left, on a backend, with each handler of SIGTERM that scripts have.

    PYTHONPATH=$PWD:$PWD/hack:$PWD/worker_image .venv/bin/python -m gpu.lost_peer gloo

`nccl` needs a GPU, which all workers share; `nccl_like` behaves under faults as NCCL does, on CPUs.

Three real agents, each with a loopback address of its own. A round without the lost worker is declared as soon as it is lost, so what a
cluster needs to notice a loss is not in it. The script has nothing to set up but torch, CUDA and the group.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gpu.table import Row, lay_out
from gpu.trainings import ENVIRONMENT, LIMIT_SECONDS
from tests.waiting import until
from tests.worker_image.agents import SCRIPTS, Agent, Events, descendants
from tests.worker_image.scripted_operator import ScriptedOperator

WORKERS = ("w0", "w1", "w2")
HANDLERS = ("none", "flag", "lightning")
PROCESS, POD, CUT_OFF = "a process is killed", "a pod is killed", "a pod is cut off"
LOSSES = (PROCESS, POD, CUT_OFF)
GRACE_SECONDS = 600  # what comes within a minute has not been held up by processes that cannot end

Steps = list[dict[str, Any]]


class Group:
    """Three agents, whose script uses a backend and handles SIGTERM in a way."""

    def __init__(self, folder: Path, backend: str, handler: str) -> None:
        self.operator, self.events = ScriptedOperator(), Events(folder / "events")
        (folder / "mode").write_text(json.dumps({"backend": backend, "handler": handler, "environment": {}}))
        environment = ENVIRONMENT | {"MODE": folder / "mode", "ELASTIC_PYTORCH_GRACE_SECONDS": GRACE_SECONDS}
        script = SCRIPTS / "on_backend.py"
        self.agents = {name: Agent(name, self.operator.url, folder, script, **environment) for name in WORKERS}
        self.operator.wait_for("ready", *WORKERS, seconds=LIMIT_SECONDS)

    def go_on(self, *workers: str) -> Steps:
        """Declares a round and waits for its workers' third step."""
        number, now = self.operator.declare(*workers), time.time()

        def steps() -> Steps:
            return [event for event in self.events.all(what="step", step=3, world=len(workers)) if event["at"] > now]

        until(lambda: {step["worker"] for step in steps()} == set(workers), f"a step of {workers}", LIMIT_SECONDS)
        self.operator.wait_for("running", *workers, number=number, seconds=LIMIT_SECONDS)
        return steps()

    def lose(self, loss: str, steps: Steps) -> tuple[str, ...]:
        """Has w2 lost; returns the workers of the next group."""
        agent = self.agents["w2"]
        if loss == PROCESS:
            os.kill(next(step["pid"] for step in steps if step["worker"] == "w2"), signal.SIGKILL)
            self.operator.wait_for("failed", "w2")
            return WORKERS
        if loss == POD:
            agent.kill()
            agent.wait()
        else:  # as of a node that is lost or cut off: none of its connections closes
            for pid in (agent.process.pid, *descendants(agent.process.pid)):
                os.kill(pid, signal.SIGSTOP)
        return WORKERS[:2]

    def close(self) -> None:
        """Ends all pods."""
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        self.operator.go_away()


class Ends(threading.Thread):
    """Notes when the last of some processes has ended."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self.at = 0.0
        self.start()

    def run(self) -> None:
        while any(_lives(pid) for pid in self._pids):
            time.sleep(0.005)
        self.at = time.time()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cost(loss: str, backend: str, handler: str) -> Row:
    """The seconds from the round's declaration to the end of the survivors' processes, and to the new group's first step."""
    with tempfile.TemporaryDirectory() as folder:
        group = Group(Path(folder), backend, handler)
        try:
            steps = group.go_on(*WORKERS)
            left = group.lose(loss, steps)
            begun = time.time()
            ends = Ends([step["pid"] for step in steps if step["worker"] in ("w0", "w1")])
            group.go_on(*left)
            of_new = group.events.all(what="step", step=1, world=len(left))
            first = min(event["at"] for event in of_new if event["at"] > begun)
            ends.join()
        finally:
            group.close()
    remark = f"{len(left)} go on; the survivors' processes ended after {ends.at - begun:.2f} s"
    return Row(loss, "", f"{backend}, handler: {handler}", f"{first - begun:.2f}", remark=remark)


def main(backend: str) -> None:
    print(lay_out([cost(loss, backend, handler) for loss in LOSSES for handler in HANDLERS]))


if __name__ == "__main__":
    main(*sys.argv[1:])
