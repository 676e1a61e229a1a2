"""Which worker an event of the trace is made to. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from elastic_pytorch_local.faults.engine import alone


def choose(pods: Sequence[Mapping[str, Any]], trained: Collection[str], pick: int) -> Mapping[str, Any] | None:
    """The pod whose node goes: of a worker that trains, if there is one, and alone on its node, if one is.

    Args:
        pods: of the job.
        trained: the workers that have lately taken a step.
        pick: a random number.
    """
    running = sorted((pod for pod in pods if _runs(pod)), key=lambda pod: str(pod["metadata"]["name"]))
    training = [pod for pod in running if pod["metadata"]["name"] in trained] or running
    lone = alone({pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in training})
    found = [pod for pod in training if pod["metadata"]["name"] in lone] or training
    return found[pick % len(found)] if found else None


def on_node(pods: Sequence[Mapping[str, Any]], node: str) -> list[Mapping[str, Any]]:
    """The job's pods that run on a node."""
    return [pod for pod in pods if _runs(pod, leaving=True) and pod["spec"]["nodeName"] == node]


def _runs(pod: Mapping[str, Any], *, leaving: bool = False) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and (leaving or "deletionTimestamp" not in pod["metadata"])
