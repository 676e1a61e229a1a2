"""What has failed, where, and which failure of several is the root cause.

A peer's broken connection is a symptom: it follows from a loss elsewhere. What the job's own code does wrong is not: an exception, a
crash, running out of memory.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from elastic_pytorch_operator.observed import AgentState, AgentView, Failure, Observed, PodView

OUT_OF_MEMORY = "OutOfMemory"  # as the agent tells of a worker that the kernel has killed for it

# What gloo, NCCL and the c10d store say when somebody else has gone away.
SYMPTOM = re.compile(
    r"gloo.*(connection (closed|reset|refused)|read error|write error|timed out|connectfullmesh|socket closed)"
    r"|connection (closed|reset) by (remote )?peer"
    r"|nccl.*(remote error|unhandled system error|connection|aborted|timeout)"
    r"|dist(network|store|backend)error"
    r"|broken pipe"
    r"|tcpstore|store.*(timeout|timed out)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """A failure, with where it happened.

    Attributes:
        id: the same for the same failure however often it is told.
        rank: global rank, None where there was none yet.
    """

    id: str
    worker: str
    rank: int | None
    exit_code: int | None
    signal: str
    message: str
    failed_at: float
    symptom: bool = False
    in_round: bool = False  # a worker process of the current round, rather than a whole pod
    foreign: bool = False  # killed by somebody else: a cause, but no failure of the job's own

    @property
    def kind(self) -> str:
        """What sort of failure it is, one word of a few."""
        if self.foreign:
            return "Killed"
        if self.signal == "SIGKILL" or "OOMKilled" in self.message:
            return "OutOfMemory"  # who else kills is foreign
        if self.id.startswith("pod/"):
            return "Pod"
        if self.signal:
            return "Signal"
        return "Hang" if self.exit_code is None else "Exit"

    def as_status(self) -> dict[str, object]:
        """As `status.rootCause` has it."""
        found = {
            "worker": self.worker,
            "rank": self.rank,
            "exitCode": self.exit_code,
            "signal": self.signal or None,
            "message": self.message[:2048],
        }
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        where = self.worker if self.rank is None else f"rank {self.rank} ({self.worker})"
        if self.exit_code is None and not self.signal:
            return f"{where} hangs: {self.message.strip()}"
        how = f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return f"{where} failed, {how}: {self.message.strip()}"


def is_foreign(failure: Failure) -> bool:
    """Whether somebody else has killed the worker: SIGKILL, but not by the kernel for lack of memory."""
    return failure.signal == "SIGKILL" and failure.exception != OUT_OF_MEMORY


def is_symptom(failure: Failure) -> bool:
    """Whether a failure says no more than that a peer has gone away."""
    if failure.signal or failure.exit_code < 0:
        return failure.signal == "SIGTERM"  # stopped from outside
    return bool(SYMPTOM.search(f"{failure.exception}: {failure.message}"))


def collect_failures(observed: Observed) -> tuple[FailureRecord, ...]:
    """All failures that agents and the kubelet tell of now, the earliest first."""
    found = []
    current = observed.round.number if observed.round else 0
    done = [a for a in observed.agents.values() if a.state is AgentState.SUCCEEDED and a.round == current]
    for agent in observed.agents.values():
        if agent.state is AgentState.FAILED and agent.failure is not None and agent.round == current:
            failure = agent.failure
            text = failure.traceback if failure.traceback.strip() else failure.message
            symptom = is_symptom(failure)
            if symptom and done:  # its peer has gone, but nobody has lost it
                symptom = False
                text = f"{done[0].worker} (rank {done[0].rank}) had returned while others still trained: {text}"
            found.append(
                FailureRecord(
                    id=f"{agent.incarnation}/{agent.round}",
                    worker=agent.worker,
                    rank=failure.rank,
                    exit_code=failure.exit_code,
                    signal=failure.signal,
                    message=text or failure.message,
                    failed_at=failure.failed_at,
                    symptom=symptom,
                    in_round=True,
                    foreign=is_foreign(failure),
                )
            )
    found += _unexplained(observed)
    for pod in observed.pods:
        if (
            pod.exit_code in (None, 0)
            or pod.deleting
            or pod.seen_dead_at_start
            or pod.exit_reason in ("Evicted", "NodeShutdown")
        ):
            continue
        # 143 and 137 without OOMKilled are the marks of somebody else's SIGTERM and SIGKILL: the pod was lost, it did not fail.
        if pod.exit_reason != "OOMKilled" and pod.exit_code in (137, 143):
            continue
        message = pod.exit_message.strip() or f"the container {describe_end(pod)}"
        found.append(FailureRecord(f"pod/{pod.uid}", pod.name, None, pod.exit_code, "", message, observed.now))
    return tuple(sorted(found, key=lambda record: (record.failed_at, record.worker)))


def failed_members(observed: Observed) -> list[AgentView]:
    """The agents of the current round that say that their workers have failed in it."""
    if observed.round is None:
        return []
    agents = [agent for name in observed.round.workers if (agent := observed.agents.get(name))]
    return [agent for agent in agents if agent.state is AgentState.FAILED and agent.round == observed.round.number]


def _unexplained(observed: Observed) -> list[FailureRecord]:
    """Failures of which an agent knows no more than that they have happened: those of a user's own torchrun.

    They may be the echo of a loss: they are none of the script's until everybody in the round has spoken since, and is there.
    """
    if observed.round is None or len(observed.round.members) < observed.round.size:
        return []
    members, failed = observed.round.workers, failed_members(observed)
    agents = [observed.agents[name] for name in members if name in observed.agents]
    broken_since = min((a.state_since for a in failed), default=0.0)
    there = {pod.name for pod in observed.pods if not pod.ended and not pod.deleting}
    if any(name not in there for name in members) or len(agents) < len(members) or any(a.failure for a in failed):
        return []
    if any(a.state is AgentState.LEAVING or (a not in failed and a.heard_at <= broken_since) for a in agents):
        return []
    told = "its workers have failed; torchrun tells no more, the pod's log does"
    return [
        FailureRecord(f"{a.incarnation}/{a.round}", a.worker, a.rank, 1, "", told, a.state_since, in_round=True) for a in failed
    ]


def root_cause(failures: Sequence[FailureRecord]) -> FailureRecord | None:
    """The earliest failure that is not a symptom of another; None if all are symptoms."""
    return min((f for f in failures if not f.symptom), key=lambda f: f.failed_at, default=None)


def describe_end(pod: PodView) -> str:
    """How a pod's container ended, to follow the pod's name in a sentence."""
    reason = pod.exit_reason or pod.phase
    if reason == "OOMKilled":
        return "ran out of memory (OOMKilled); raise its memory limit or make it use less"
    if pod.exit_code is None:
        return f"has ended ({reason}{': ' + pod.exit_message if pod.exit_message else ''})"
    return f"has ended with exit code {pod.exit_code} ({reason})"
