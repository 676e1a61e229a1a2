"""What decisions are made from: frozen views of pods, nodes and agents at one moment.

Of times of day, only the date that a cloud announces for a node's maintenance enters a decision.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earlier
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Taint
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.model.workload import WorkloadView

MAX_PLACES = 128


class PlaceKind(StrEnum):
    """Where a process's main thread is (docs/internals/protocol.md)."""

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
    operation: str = ""  # of a collective, in torch's words; `backward` in the backward pass
    frame: str = ""  # the innermost one of the user's script, such as `train.py:41 load`


SILENT = Place(PlaceKind.SILENT)


TERMINAL_PHASES = ("Failed", "Succeeded")
# The kubelet's reasons for not creating a container: the first never passes, the others may.
NEVER = ("InvalidImageName",)
HARDLY = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "CreateContainerConfigError")


@dataclass(frozen=True, slots=True)
class PodView:
    """A worker pod, or the store's pod of a stock rendezvous."""

    name: str
    uid: str
    index: int
    phase: str = "Pending"
    node: str = ""
    address: str = ""
    deleting: bool = False
    started: bool = False  # its training container runs
    exit_code: int | None = None  # of its training container
    exit_reason: str = ""  # Completed, Error, OOMKilled, Evicted, …
    exit_message: str = ""
    disrupted: bool = False  # it was evicted, preempted or shut down with its node
    sidecar_runs: bool = False  # a container that the kubelet does not stop by itself
    ended_before_deletion: bool = False
    waiting: str = ""  # why it does not run yet, for people
    waiting_reason: str = ""
    unschedulable: bool = False  # no node fits, and the scheduler makes no room on one
    avoids: frozenset[str] = frozenset()  # nodes on which it may not run
    prefers_others_to: frozenset[str] = frozenset()  # nodes that it takes only if no other fits
    created_at: float = 0.0
    stuck_since: float = 0.0
    ended_at: float = 0.0
    conditions: frozenset[tuple[str, str]] = frozenset()  # type and status of each
    group_restarts: int = 0  # of the job when it was made
    failed_starts: tuple[str, ...] = ()  # nodes on which its predecessors have failed, in a row
    ended_before_takeover: bool = False  # when this operator began to decide
    role: str = names.ROLE_WORKER
    rendezvous: int = 0  # of stock torchrun
    workload: str = ""  # by whose quota it runs
    topology: bool = False  # Kueue has chosen its node
    unhealthy: str = ""  # its resources with a device that the kubelet calls unhealthy
    grace_seconds: float = 30.0  # from SIGTERM to SIGKILL
    creation_time: str = ""  # by the API server: comparable with that of other pods only

    @property
    def stuck(self) -> bool:
        return self.waiting_reason in (*NEVER, *HARDLY)

    @property
    def ended(self) -> bool:
        """Whether the training container never runs again: worker pods have restartPolicy Never."""
        return self.exit_code is not None or self.phase in TERMINAL_PHASES

    @property
    def stays(self) -> bool:
        return not (self.ended or self.deleting)

    @property
    def lingers(self) -> bool:
        """Whether its training is over, but scheduler and quotas still count its requests."""
        return self.ended and self.sidecar_runs

    @property
    def succeeded(self) -> bool:
        """Whether its training container has exited with 0, and not after SIGTERM."""
        return self.exit_code == 0 and (self.ended_before_deletion or not self.deleting)

    @property
    def stock(self) -> bool:
        """Whether stock torchrun runs in it, so that no agent reports its end."""
        return self.rendezvous > 0


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    ready: bool = True
    unschedulable: bool = False
    removed: bool = False  # the node was there, and has been deleted; it is not ready either
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()  # those that keep new pods away
    allocatable: Mapping[str, str] = field(default_factory=dict)
    end: AnnouncedEnd | None = None


class Nodes(dict[str, NodeView]):
    """By name; never changed, so that counts hold for every plan."""

    @cached_property
    def there(self) -> int:
        return sum(not node.removed for node in self.values())

    @cached_property
    def not_ready(self) -> int:
        return sum(not (node.removed or node.ready) for node in self.values())


class AgentState(StrEnum):
    """What an agent is doing (docs/internals/protocol.md)."""

    PREPARING = "preparing"
    READY = "ready"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Failure:
    """The first one among an agent's processes; `exit_code` as the kubelet would report it."""

    rank: int
    exit_code: int
    signal: str
    exception: str
    message: str
    traceback: str
    failed_at: float
    pid: int = 0  # in the pod; 0: not known
    echo: bool = False  # it is only the consequence of a peer's failure or loss


MAX_METRICS = 16
MAX_COMPARED = 16  # processes of a worker


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report of the training script; None: not reported."""

    step: int | None = None
    first_step: int | None = None  # of the round
    total: int | None = None
    loss: float | None = None
    checkpoint_step: int | None = None
    checkpoint_seconds: float | None = None  # that writing it took
    # That its agent has seen written to the folder that it watches; None: it watches none.
    checkpoints: int | None = None
    # Of a few seconds each, in which the work of the pod's processes was measured in the round.
    work_windows: int | None = None
    # Of a step in the last window, without waits for others; by local rank.
    work_seconds: tuple[float | None, ...] = ()
    step_seconds: float | None = None  # in the same window
    metrics: tuple[tuple[str, float], ...] = ()
    failed_saves: int = 0  # of checkpoints, in a row
    save_error: str = ""


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
    disconnected_since: float | None = None
    restarts: int = 0
    failure: Failure | None = None
    progress: Progress = Progress()
    progressed_at: float = 0.0  # when it last reported a new step
    steps_per_second: float | None = None  # over the last few heartbeats
    newest: int = 0  # the newest round that it knows, whether or not it has taken it up
    started_at: float | None = None  # all its processes of the round
    formed_at: float | None = None  # their process group; None for a script that starts cold
    set_up_since: float | None = None  # its last set-up before a group
    set_up_until: float | None = None
    keeps_processes: bool = False  # they can join another group without a restart
    saving_since: float | None = None  # only the last checkpoint is left to write
    # Of its processes, by local rank, as last read in the round; empty: not known.
    places: tuple[Place, ...] = ()
    placed_at: float = 0.0
    gives_up: bool = False  # its torchrun has restarted the processes as often as it may


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object of the job that the operator cannot read, and leaves out."""

    kind: str
    name: str
    fault: str


@dataclass(frozen=True)
class Observed:
    now: float  # monotonic seconds
    time: str  # the same moment in RFC 3339, for status timestamps only
    pods: tuple[PodView, ...] = ()
    stores: tuple[PodView, ...] = ()  # of stock rendezvous
    nodes: Nodes = field(default_factory=Nodes)  # a missing node has not been seen yet
    agents: Mapping[str, AgentView] = field(default_factory=dict)  # by worker, that is pod name
    round: Round | None = None
    listening_since: float = 0.0
    last_heard_at: float = 0.0  # from an agent of any job
    heard_again_at: float = -math.inf  # after a silence of all agents
    heartbeat_seconds: float = 1.0  # between two heartbeats of an agent, at most
    arrived_at: float = 0.0  # when the job's last agent arrived that already had a round
    on_time_since: float = 0.0  # what known agents have sent since then has been read in time
    lets_in_since: float = 0.0  # since when no agent has had to wait before it was let in
    heard_before: frozenset[str] = frozenset()  # workers, by an earlier operator
    # Where the last leader ran, if its lease has run out: the node may have died.
    lost_leader_node: str = ""
    service_exists: bool = False
    # The gang's size in its PodGroup; 0: there is none; None: not known.
    pod_group_minimum: int | None = None
    reports_progress: bool = False  # an agent has reported a step
    reporting_jobs: int = 1
    workloads: tuple[WorkloadView, ...] | None = None  # by number; None: without Kueue
    being_created: Mapping[int, str] = field(default_factory=dict)  # Workloads by pod index
    unreadable: tuple[UnreadableObject, ...] = ()  # pods and Workloads of the job

    @cached_property
    def pods_by_name(self) -> Mapping[str, PodView]:
        return {pod.name: pod for pod in self.pods}

    @property
    def ranks(self) -> Mapping[str, int]:
        return self.round.ranks if self.round else {}

    @cached_property
    def trained(self) -> Set[str]:
        """The members; while the round is empty, those of the last group: they have its state."""
        if self.ranks:
            return self.ranks.keys()
        last = max((agent.round for agent in self.agents.values()), default=0)
        return {name for name, agent in self.agents.items() if 0 < agent.round == last}

    @property
    def group_size(self) -> int:
        return self.round.size if self.round else 0

    @cached_property
    def saving_since(self) -> float | None:
        since = (agent.saving_since for agent in self.took_up(self.round))
        return min((moment for moment in since if moment is not None), default=None)

    def agents_in(self, round_: Round | None) -> list[AgentView]:
        """Those of a round's members that have reported, in rank order."""
        members = round_.ranks if round_ else ()
        return [agent for worker in members if (agent := self.agents.get(worker))]

    def took_up(self, round_: Round | None) -> list[AgentView]:
        """Those of its members that have taken a round up, in rank order."""
        return [a for a in self.agents_in(round_) if round_ and a.round == round_.number]

    def time_of(self, moment: float) -> str:
        """A moment of the monotonic clock in RFC 3339."""
        return earlier(self.time, self.now - moment)

    def on_removed_node(self, pod: PodView) -> bool:
        node = self.nodes.get(pod.node)
        return node is not None and node.removed

    def on_unready_node(self, pod: PodView) -> bool:
        node = self.nodes.get(pod.node)
        return node is not None and not node.ready
