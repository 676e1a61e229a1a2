"""Operators whose container waits are replaced; others are left alone."""

from pathlib import Path
from typing import Any

from soak.back_off import replace_waiting_operators
from soak.observe import Observer
from soak.stage import Stage

STATES = {
    "running": {"running": {}},
    "in-back-off": {"waiting": {"reason": "CrashLoopBackOff"}},
    "starting": {"waiting": {"reason": "ContainerCreating"}},
}


class Cluster:
    """Has four operators, one of them just scheduled, and takes note of what is deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def ask(self, method: str, path: str) -> dict[str, Any]:
        if method == "DELETE":
            self.deleted.append(path.rpartition("/")[2])
        pods = [(name, [{"state": state}]) for name, state in STATES.items()] + [("scheduled", None)]
        return {"items": [{"metadata": {"name": name}, "status": {"containerStatuses": states}} for name, states in pods]}


async def test_operators_in_back_off_are_replaced(tmp_path: Path) -> None:
    cluster = Cluster()
    observer = Observer(cluster, None, "ns", tmp_path, [])  # type: ignore[arg-type]
    await replace_waiting_operators(Stage(cluster, None, observer, "ns", tmp_path, [], ""))  # type: ignore[arg-type]
    assert cluster.deleted == ["in-back-off"]
