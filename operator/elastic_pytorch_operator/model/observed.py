"""What decisions are made from: frozen views of pods, nodes and agents at one moment.

No worker's or node's time of day enters a decision, so a clock that is an hour off changes nothing.
The one exception is the date that a cloud announces for a node's maintenance.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Taint
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.model.workload import WorkloadView

MAX_PLACES = 128  # of one pod that are compared


class PlaceKind(StrEnum):
    """What a process's main thread is in; docs/internals/protocol.md describes each."""

    COLLECTIVE = "collective"
    DATA_LOADER = "dataLoader"
    LOCK = "lock"
    FILE = "file"
    OTHER = "other"
    ENDED = "ended"
    STOPPED = "stopped"
    KERNEL = "kernel"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Place:
    kind: PlaceKind
    # Of a collective, as torch calls it; `backward` in the backward pass. Else empty.
    operation: str = ""
    # The innermost one of the user's own script, such as `train.py:41 load`; empty: none is known.
    frame: str = ""


SILENT = Place(PlaceKind.SILENT)


TERMINAL_PHASES = ("Failed", "Succeeded")
# The kubelet's reasons for not creating a container: the first never passes, the others may.
NEVER = ("InvalidImageName",)
HARDLY = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "CreateContainerConfigError")


@dataclass(frozen=True, slots=True)
class PodView:
    """A worker pod, or the pod of a stock rendezvous' store, as the API server last reported it."""

    name: str
    uid: str
    index: int
    phase: str = "Pending"
    node: str = ""
    address: str = ""
    deleting: bool = False
    started: bool = False  # its training container runs
    exit_code: int | None = None  # of its training container, once that has ended
    exit_reason: str = ""  # the kubelet's word for it: Completed, Error, OOMKilled, Evicted, …
    exit_message: str = ""
    # The cluster reports that it was evicted, preempted or shut down with its node.
    disrupted: bool = False
    # Another container has not ended, and the kubelet does not stop it by itself.
    sidecar_runs: bool = False
    ended_before_deletion: bool = False  # was seen ended before its deletion was asked for
    waiting: str = ""  # why it does not run yet, for people
    waiting_reason: str = ""  # the kubelet's or the scheduler's word for it
    # The scheduler has found no node for it, and makes no room on one either.
    unschedulable: bool = False
    avoids: frozenset[str] = frozenset()  # nodes that it was made to keep away from
    # Nodes that it was made to take only if no other fits.
    prefers_others_to: frozenset[str] = frozenset()
    created_at: float = 0.0
    stuck_since: float = 0.0  # since when its containers cannot be created
    ended_at: float = 0.0  # when it was first seen to have ended
    conditions: frozenset[tuple[str, str]] = frozenset()  # type and status of each
    # How often the job's pods had been replaced as a group when it was made.
    group_restarts: int = 0
    # The nodes on which the pods before it of its index have failed to start, in a row.
    failed_starts: tuple[str, ...] = ()
    ended_before_takeover: bool = False  # had ended when this operator began to decide
    role: str = names.ROLE_WORKER
    rendezvous: int = 0  # the stock rendezvous that it was made for
    workload: str = ""  # by whose quota it runs
    topology: bool = False  # Kueue has chosen its node
    unhealthy: str = ""  # the resources of which the kubelet calls a device of its unhealthy
    grace_seconds: float = 30.0  # from SIGTERM to SIGKILL
    # RFC 3339, the API server's time of day: it is compared only with that of other pods.
    creation_time: str = ""

    @property
    def hopeless(self) -> bool:
        """Whether its containers can never be created from its spec."""
        return self.waiting_reason in NEVER

    @property
    def stuck(self) -> bool:
        """Whether its containers cannot be created, at least for now."""
        return self.waiting_reason in (*NEVER, *HARDLY)

    @property
    def ended(self) -> bool:
        """Whether its training is over: the training container will never run again (worker pods have restartPolicy Never)."""
        return self.exit_code is not None or self.phase in TERMINAL_PHASES

    @property
    def lingers(self) -> bool:
        """Whether its training is over, but the pod is not: the scheduler and quotas count its requests until its phase is terminal."""
        return self.ended and self.sidecar_runs

    @property
    def succeeded(self) -> bool:
        """Whether its training container has exited with 0 by itself: exit code 0 after SIGTERM is no success."""
        return self.exit_code == 0 and (self.ended_before_deletion or not self.deleting)

    @property
    def stock(self) -> bool:
        """Whether stock torchrun runs in it, so that no agent tells how it has ended."""
        return self.rendezvous > 0

    def newer_than(self, other: "PodView | None") -> bool:
        """Whether it was created after another one, None: there is none.

        Of two that were created at once, the ended one is older.
        """
        return other is None or (self.creation_time, not self.ended) > (
            other.creation_time,
            not other.ended,
        )


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    ready: bool = True
    unschedulable: bool = False
    removed: bool = False  # there was such a node, and it has been deleted; it is not ready either
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()  # those that keep new pods away
    allocatable: Mapping[str, str] = field(default_factory=dict)
    end: AnnouncedEnd | None = None  # that it announces


class Nodes(dict[str, NodeView]):
    """All nodes by name, at one moment.

    It is never changed: what is counted once holds for every plan that reads it.
    """

    @cached_property
    def there(self) -> int:
        """How many there are, without those that have been removed."""
        return sum(not node.removed for node in self.values())

    @cached_property
    def not_ready(self) -> int:
        return sum(not (node.removed or node.ready) for node in self.values())


class AgentState(StrEnum):
    """What an agent reports that it is doing; docs/internals/protocol.md describes each."""

    PREPARING = "preparing"
    READY = "ready"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Failure:
    """The first failure among an agent's workers, as the agent reports it; `exit_code` is as the kubelet would report it."""

    rank: int
    local_rank: int
    exit_code: int
    signal: str
    exception: str
    message: str
    traceback: str
    failed_at: float
    pid: int = 0  # in the pod; 0: not known
    echo: bool = False  # its words tell only what has happened to a peer


MAX_METRICS = 16  # that a status lists
MAX_COMPARED = 16  # processes of a worker whose work is compared with that of others


@dataclass(frozen=True, slots=True)
class Progress:
    """What the training script last reported; None where it has not."""

    step: int | None = None
    first_step: int | None = None  # the first one of the round
    total: int | None = None
    loss: float | None = None
    checkpoint_step: int | None = None
    checkpoint_seconds: float | None = None  # for which that checkpoint was written
    # That its agent has seen written to the folder that it watches; None: it watches none.
    checkpoints: int | None = None
    # Of a few seconds each, in which the work of the pod's processes was measured in the round.
    work_windows: int | None = None
    # Of a step in the last of them, without waits for others; by local rank.
    work_seconds: tuple[float | None, ...] = ()
    step_seconds: float | None = None  # of a step, in the same window
    metrics: tuple[tuple[str, float], ...] = ()  # other numbers that it reports, by name
    failed_saves: int = 0  # of checkpoints, in a row
    save_error: str = ""  # of the last of them


@dataclass(frozen=True, slots=True)
class AgentView:
    worker: str
    incarnation: str
    state: AgentState
    round: int
    rank: int
    world_size: int
    local_world_size: int
    port: int
    heard_at: float
    state_since: float
    disconnected_since: float | None = None  # when its stream was cut, if it has opened none since
    restarts: int = 0
    failure: Failure | None = None
    progress: Progress = Progress()
    progressed_at: float = 0.0  # when it last reported a new step
    steps_per_second: float | None = None  # over the last few heartbeats
    # The number of the newest round that it knows, whether or not it has taken it up.
    newest: int = 0
    # When all its processes of the round had been started; None: not known.
    started_at: float | None = None
    # When their process group had formed; None: not known, as of a script that starts cold.
    formed_at: float | None = None
    # When its last set-up before a group has begun; None: not known.
    set_up_since: float | None = None
    set_up_until: float | None = None  # when that was over; None: not known, or it goes on
    keeps_processes: bool = False  # they can join another group without a restart
    # Since when its training is done but for the last checkpoint; None: it is not.
    saving_since: float | None = None
    # Of its processes, by local rank, when it was last asked in the round; empty: not known.
    places: tuple[Place, ...] = ()
    placed_at: float = 0.0  # when it read them
    # Its torchrun has started the failed workers as often as its own budget allows, and ends.
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object of the job that the operator cannot read, and leaves out."""

    kind: str
    name: str
    fault: str


@dataclass(frozen=True, slots=True)
class Observed:
    now: float  # monotonic seconds
    time: str  # the same moment in RFC 3339, for status timestamps only
    pods: tuple[PodView, ...] = ()
    stores: tuple[PodView, ...] = ()  # of stock rendezvous
    nodes: Nodes = field(default_factory=Nodes)  # a missing node has not been seen yet
    agents: Mapping[str, AgentView] = field(default_factory=dict)  # by worker, that is pod name
    round: Round | None = None  # the newest declared; None: none yet
    listening_since: float = 0.0  # when this operator began to listen to agents
    last_heard_at: float = 0.0  # when it last heard any agent of any job
    heard_again_at: float = -math.inf  # when it heard the first one after none of any job
    heartbeat_seconds: float = 1.0  # between two heartbeats of an agent, at most
    arrived_at: float = 0.0  # when the job's last agent arrived that already had a round
    on_time_since: float = 0.0  # since when what known agents send has been read in time
    lets_in_since: float = 0.0  # since when no agent has had to wait before it was let in
    # Workers whose agents an operator before this one has heard.
    heard_before: frozenset[str] = frozenset()
    # Where the operator before this one ran, if its lease has run out: the node may have died.
    lost_leader_node: str = ""
    service_exists: bool = False
    # The gang's size in its PodGroup; 0: there is none; None: that is not known.
    pod_group_minimum: int | None = None
    reports_progress: bool = False  # an agent has reported a step
    reporting_jobs: int = 1  # how many jobs report progress
    # By number; None: the operator does not support Kueue here.
    workloads: tuple[WorkloadView, ...] | None = None
    # The Workloads of pods that are on their way, by index.
    being_created: Mapping[int, str] = field(default_factory=dict)
    unreadable: tuple[UnreadableObject, ...] = ()  # pods and Workloads of the job
    pods_by_name: Mapping[str, PodView] = field(init=False, repr=False, compare=False)
    ranks: Mapping[str, int] = field(init=False, repr=False, compare=False)
    # Only the last checkpoint is left to write; None: it trains, or is done.
    saving_since: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pods_by_name", {pod.name: pod for pod in self.pods})
        object.__setattr__(self, "ranks", self.round.ranks if self.round else {})
        object.__setattr__(self, "saving_since", self._since_saving())

    def _since_saving(self) -> float | None:
        members = (agent for name in self.ranks if (agent := self.agents.get(name)))
        number = self.round.number if self.round else 0
        return min(
            (m.saving_since for m in members if m.saving_since is not None and m.round == number),
            default=None,
        )

    def on_removed_node(self, pod: PodView) -> bool:
        node = self.nodes.get(pod.node)
        return node is not None and node.removed
