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
from gpu.trainings import LIMIT_SECONDS, Rounds, closing
from tests.waiting import until
from tests.worker_image.agents import SCRIPTS, descendants

WORKERS = ("w0", "w1", "w2")
HANDLERS = ("none", "flag", "lightning")
PROCESS, POD, CUT_OFF = "a process is killed", "a pod is killed", "a pod is cut off"
LOSSES = (PROCESS, POD, CUT_OFF)
GRACE_SECONDS = 600  # what comes within a minute has not been held up by processes that cannot end

Steps = list[dict[str, Any]]


def train(job: Rounds, *workers: str) -> Steps:
    """Declares a round; returns the third steps of its workers, as soon as all have told of theirs."""
    number, now = job.operator.declare(*workers), time.time()

    def steps() -> Steps:
        return [event for event in job.events.all(what="step", step=3, world=len(workers)) if event["at"] > now]

    until(lambda: {step["worker"] for step in steps()} == set(workers), f"a step of {workers}", LIMIT_SECONDS)
    job.operator.wait_for("running", *workers, number=number, seconds=LIMIT_SECONDS)
    return steps()


def lose(job: Rounds, loss: str, steps: Steps) -> tuple[str, ...]:
    """Has w2 lost; returns the workers of the next group."""
    agent = job.agents["w2"]
    if loss == PROCESS:
        os.kill(next(step["pid"] for step in steps if step["worker"] == "w2"), signal.SIGKILL)
        job.operator.wait_for("failed", "w2")
        return WORKERS
    if loss == POD:
        agent.kill()
        agent.wait()
    else:  # as of a node that is lost or cut off: none of its connections closes
        for pid in (agent.process.pid, *descendants(agent.process.pid)):
            os.kill(pid, signal.SIGSTOP)
    return WORKERS[:2]


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
        (mode := Path(folder, "mode")).write_text(json.dumps({"backend": backend, "handler": handler, "environment": {}}))
        environment = {"MODE": mode, "ELASTIC_PYTORCH_GRACE_SECONDS": GRACE_SECONDS}
        job = Rounds(Path(folder), (SCRIPTS / "on_backend.py",), **environment)
        with closing(job):
            for worker in WORKERS:
                job.add(worker)
            job.ready(*WORKERS)
            steps = train(job, *WORKERS)
            left = lose(job, loss, steps)
            begun = time.time()
            ends = Ends([step["pid"] for step in steps if step["worker"] in ("w0", "w1")])
            train(job, *left)
            of_new = job.events.all(what="step", step=1, world=len(left))
            first = min(event["at"] for event in of_new if event["at"] > begun)
            ends.join()
    remark = f"{len(left)} go on; the survivors' processes ended after {ends.at - begun:.2f} s"
    return Row(loss, "", f"{backend}, handler: {handler}", f"{first - begun:.2f}", remark=remark)


def main(backend: str) -> None:
    print(lay_out([cost(loss, backend, handler) for loss in LOSSES for handler in HANDLERS]))


if __name__ == "__main__":
    main(*sys.argv[1:])
