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

    before_pods: bool  # no pod is made before
    without_pods: bool = False


@dataclass(frozen=True, slots=True)
class DeletePodGroup: ...


@dataclass(frozen=True, slots=True)
class CreatePod:
    index: int
    avoid: tuple[str, ...] = ()  # nodes on which it is never placed
    rendezvous: int = 0  # of stock torchrun; 0: the operator decides who is in the group
    unwanted: tuple[str, ...] = ()  # nodes on which it is placed only if no other takes it
    failed_starts: tuple[str, ...] = ()  # `PodView.failed_starts`
    group_restarts: int = 0
    grant: Grant | None = None
    apart: bool = False  # a spare, which prefers a node without another pod of the job


@dataclass(frozen=True, slots=True)
class TryPod:
    """Ask the API server by a dry run whether it would accept a worker pod."""


@dataclass(frozen=True, slots=True)
class CreateStore:
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
    # Only once the status is written that it reports: or else each plan would record it again.
    with_status: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)  # the note's facts, for programs


@dataclass(frozen=True, slots=True)
class PatchStatus:
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job and all that it owns: its time to live after its end is over."""


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    number: int  # `BASE`, or which extra it is
    count: int
    flavors: tuple[str, ...] = ()  # for an extra, those of the base; none: any


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
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
    """Change a Workload's number of pods, if it still has this resource version."""

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
