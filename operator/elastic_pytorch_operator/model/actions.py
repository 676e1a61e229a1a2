"""What a plan asks for: each action is one call to the API server, safe to repeat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.model.workload import Grant


@dataclass(frozen=True, slots=True)
class CreateService: ...


@dataclass(frozen=True, slots=True)
class PutPodGroup:
    """Make the job's PodGroup, or give it the job's minimum."""

    before_pods: bool  # no pod is to be made before
    without_pods: bool = False


@dataclass(frozen=True, slots=True)
class DeletePodGroup: ...


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a worker pod of an index; the executor gives it a name of its own."""

    index: int
    avoid: tuple[str, ...] = ()  # nodes on which it is never placed
    # Of stock torchrun, that it joins; 0: the operator decides who is in the group.
    rendezvous: int = 0
    unwanted: tuple[str, ...] = ()  # nodes on which it is placed only if no other takes it
    # Where the pods before it of its index have failed to start, in a row.
    failed_starts: tuple[str, ...] = ()
    group_restarts: int = 0
    grant: Grant | None = None
    apart: bool = False  # it is a spare so far, and prefers a node without another pod of the job


@dataclass(frozen=True, slots=True)
class TryPod:
    """Ask the API server by a dry run whether it would accept a worker pod of the job."""


@dataclass(frozen=True, slots=True)
class CreateStore:
    """Make the pod that serves the c10d store of a stock rendezvous."""

    rendezvous: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    name: str
    uid: str
    why: str
    force: bool = False  # without waiting for its kubelet, which is known to be gone


@dataclass(frozen=True, slots=True)
class RecordEvent:
    reason: str
    note: str
    warning: bool = False
    # It reports a change of the status: only once that is written, or else each plan would record
    # it again.
    with_status: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)  # what the note says, for programs


@dataclass(frozen=True, slots=True)
class PatchStatus:
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, and with it all that it owns: its time to live after its end is over."""


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Ask Kueue for quota."""

    number: int  # `BASE`, or which extra it is
    count: int
    # An extra is to be of the same ones as the base; none: those that fit it.
    flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Give quota back, or no longer ask for it."""

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class PatchWorkload:
    """Change a Workload, if it still has this resource version."""

    name: str
    version: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResizeWorkload:
    """Change for how many pods a Workload asks, if it still has this resource version."""

    name: str
    version: str
    count: int


WorkloadAction = CreateWorkload | DeleteWorkload | PatchWorkload | ResizeWorkload
Action = (
    CreateService
    | PutPodGroup
    | DeletePodGroup
    | TryPod
    | CreatePod
    | CreateStore
    | DeletePod
    | RecordEvent
    | PatchStatus
    | DeleteJob
    | WorkloadAction
)
