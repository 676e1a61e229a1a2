"""Devices that have failed a worker, by its own last words: its pod is replaced, and new pods keep away from the node for half an hour.

A process that starts again in the same container has the same device. An agent says so once: what follows from it is remembered here. A
new leader does not know it before the device fails another worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.model.failure import Fault, has_device_fault
from elastic_pytorch_operator.model.observed import AgentState, Observed
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure

AVOID_SECONDS = 1800.0  # who repairs a device takes minutes to hours


@dataclass(frozen=True, slots=True)
class DeviceFaults:
    """What is remembered.

    Attributes:
        nodes: where a device has failed a worker, and since when, in monotonic seconds.
        workers: those workers, while their pods are there.
        again: those of them on whose node a device had failed another worker before.
    """

    nodes: Mapping[str, float] = field(default_factory=dict)
    workers: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()


NO_DEVICE_FAULTS = DeviceFaults()


def find_device_faults(known: DeviceFaults, observed: Observed) -> DeviceFaults:
    """Returns what is to be remembered now.

    Args:
        known: what was remembered.
        observed: the job's pods and agents.
    """
    agents = (agent for agent in observed.agents.values() if agent.state is AgentState.FAILED and has_device_fault(agent))
    failed = {agent.worker for agent in agents if agent.worker in observed.pods_by_name} - known.workers
    nodes = {node: since for node, since in known.nodes.items() if observed.now <= since + AVOID_SECONDS}
    again = {name for name in failed if observed.pods_by_name[name].node in nodes}
    nodes |= {pod.node: observed.now for name in failed if (pod := observed.pods_by_name[name]).node}
    there = observed.pods_by_name.keys()
    workers = frozenset(there & {*known.workers, *failed})
    return DeviceFaults(nodes, workers, frozenset(there & {*known.again, *again}))


def judge_again(faults: DeviceFaults, failure: RoundFailure) -> RoundFailure:
    """Returns a round's failure, which counts if a device of the same node has failed the job before.

    So a job ends that has no other node, or whose script has the words of a broken device by mistake.
    """
    cause = failure.cause
    if cause is None or cause.worker not in faults.again or cause.fault is not Fault.PLACE:
        return failure
    return replace(failure, cause=replace(cause, fault=Fault.CODE))


def displaced_by_faults(faults: DeviceFaults, observed: Observed) -> frozenset[str]:
    """The workers that serve no more. A member is not among them: the failure of its round comes first."""
    return faults.workers - observed.ranks.keys()


def doubtful_nodes(faults: DeviceFaults, observed: Observed) -> frozenset[str]:
    """The nodes that new pods keep away from if others have room: a device has failed there, or is unhealthy."""
    return frozenset(faults.nodes) | {pod.node for pod in observed.pods if pod.unhealthy and not pod.ended}
