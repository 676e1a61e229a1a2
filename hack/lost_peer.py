"""Measures what a lost peer costs the workers that are left, on a backend, with each handler of SIGTERM that scripts have.

.venv/bin/python hack/lost_peer.py gloo
.venv/bin/python hack/lost_peer.py nccl_like
.venv/bin/python hack/lost_peer.py nccl         # on a GPU, which all workers share

Three real agents, each with a loopback address of its own. A round without the lost worker is declared as soon as it is lost, so what a
cluster needs to notice a loss is not in it. The script has nothing to set up but torch, CUDA and the group.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.worker_image.running_agent import test_faults_on_backends as faults

HANDLERS = ("none", "flag", "lightning")
LOSSES = {
    "a process is killed": faults.kill_process,
    "a pod is killed": faults.kill_pod,
    "a pod is cut off": faults.silence_pod,
}


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


def costs(group: faults.Group, backend: str, handler: str, lose: Any) -> tuple[float, float]:
    """Returns the seconds from the round's declaration to the end of the survivors' processes, and to the new group's first step."""
    steps = group.begin(backend, handler, *faults.WORKERS)
    left = lose(group, steps)
    begun = time.time()
    ends = Ends([step["pid"] for step in steps if step["worker"] in ("w0", "w1")])
    group.go_on(*left)
    first = min(
        event["at"] for event in group.events.all(what="step", step=1, world=len(left), **group.mode) if event["at"] > begun
    )
    ends.join()
    if lose is faults.silence_pod:
        for pid in faults.family(group.agents["w2"].process.pid):
            os.kill(pid, signal.SIGCONT)
        group.go_on(*faults.WORKERS)
    group.done()
    return ends.at - begun, first - begun


def main(backend: str) -> None:
    table = Table(
        "lost", *(f"handler: {handler}" for handler in HANDLERS), title=f"{backend}: survivors have ended, the next group steps"
    )
    with tempfile.TemporaryDirectory() as folder:
        group = faults.Group(Path(folder))
        try:
            for name, lose in LOSSES.items():
                measured = [costs(group, backend, handler, lose) for handler in HANDLERS]
                table.add_row(name, *(f"{ended:.2f} s, {stepped:.2f} s" for ended, stepped in measured))
        finally:
            for agent in group.agents.values():
                agent.kill()
                agent.wait()
            group.operator.go_away()
    Console(width=120).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
