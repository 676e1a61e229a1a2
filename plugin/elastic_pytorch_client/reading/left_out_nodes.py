"""The nodes that a job does without, as its status lists them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LeftOutNode:
    """An entry of `status.leftOutNodes`.

    Attributes:
        node: its name.
        worker: that failed its checks there.
        message: what was wrong, to follow the worker's name in a sentence.
    """

    node: str
    worker: str
    message: str

    def __str__(self) -> str:
        """Says which node is left out, and why."""
        return f"node {self.node} is left out: {self.worker} {self.message}, twice"


def view_left_out_nodes(status: Mapping[str, Any]) -> tuple[LeftOutNode, ...]:
    """Returns the nodes that a status lists, the last one last."""
    return tuple(
        LeftOutNode(str(entry.get("node", "")), str(entry.get("worker", "")), str(entry.get("message", "")))
        for entry in status.get("leftOutNodes") or ()
    )
