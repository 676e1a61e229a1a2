"""Places on nodes that tests count out: an extended resource of which each worker takes one."""

import json

from tests.e2e.job_under_test import run_kubectl
from tests.waiting import until

SLOT, PATH = "example.com/slot", "/status/capacity/example.com~1slot"


def give_slots(nodes: list[str], slots: int) -> None:
    """Has nodes advertise slots, as an administrator may do by hand, and waits until the scheduler counts them."""
    operation = {"op": "add", "path": PATH, "value": str(slots)}
    for node in nodes:
        run_kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps([operation]))
    until(lambda: all(allocatable_slots(node) == slots for node in nodes), "the kubelets to take the slots up")


def allocatable_slots(node: str) -> int:
    """The slots of a node that pods can have."""
    found = json.loads(run_kubectl("get", "node", node, "-o", "json").stdout)["status"]["allocatable"]
    return int(found.get(SLOT, 0))
