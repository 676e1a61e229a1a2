"""Places on nodes that tests count out: an extended resource of which each worker takes one."""

import json

from tests.e2e.job_under_test import run_kubectl
from tests.waiting import until

SLOT = "example.com/slot"


def give_slots(nodes: list[str], slots: int) -> None:
    """Has nodes advertise slots, allocatable at once, where a kubelet takes ten seconds."""
    paths = [f"/status/{field}/{SLOT.replace('/', '~1')}" for field in ("capacity", "allocatable")]
    operations = json.dumps([{"op": "add", "path": path, "value": str(slots)} for path in paths])
    for node in nodes:
        run_kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", operations)
    until(
        lambda: all(allocatable_slots(node) == slots for node in nodes),
        "the slots to be allocatable",
    )


def allocatable_slots(node: str) -> int:
    found = json.loads(run_kubectl("get", "node", node, "-o", "json").stdout)["status"][
        "allocatable"
    ]
    return int(found.get(SLOT, 0))
