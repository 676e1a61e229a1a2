"""What has failed, and whose fault it is. Only the job's own code counts against its budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastic_pytorch_operator.model.observed import (
    AgentState,
    AgentView,
    Failure,
    Observed,
    PodView,
)
from elastic_pytorch_operator.spec.failure_rules import FailureRule

OUT_OF_MEMORY = "OutOfMemory"  # the agent's
DEVICE_FAULT = "DeviceFault"  # the agent's, for last words that name a failed device
OOM_KILLED = "OOMKilled"  # the kubelet's
# A shell's codes for "cannot be executed" and "not found", and the runtime's for "cannot start".
START_ERROR_CODES = (126, 127, 128)
RUNTIME_REASONS = ("StartError", "ContainerCannotRun")
# The kubelet's reasons for the end of a pod by its own spec.
OWN_ENDS = ("Evicted", "DeadlineExceeded")
KILLED_CODES = (137, 143)  # SIGKILL and SIGTERM from outside the container


class Fault(StrEnum):
    CODE = "code"  # the job's own: an exception, a crash, out of memory
    PLACE = "place"  # the node's, the kubelet's or the image's
    ECHO = "echo"  # a consequence of a peer's failure or loss
    OUTSIDE = "outside"  # a signal from outside the container


@dataclass(frozen=True, slots=True)
class FailureRecord:
    worker: str
    rank: int | None
    exit_code: int | None
    signal: str
    message: str
    failed_at: float
    fault: Fault = Fault.CODE
    pod_uid: str = ""  # of the pod that failed as a whole; empty: a process in it did
    pid: int | None = None
    node: str = ""
    time: str = ""
    rule: FailureRule | None = None  # of `failurePolicy.rules`, that decides on it
    group_restarts: int = 0  # of the job when the pod was made
    oom_killed: bool = False  # the container, for lack of memory
    round: int = 0  # of the pod's workers when it ended; 0: none
    end: str = ""  # `name_end` of a pod that something outside its container has ended

    @property
    def kind(self) -> str:
        if self.fault is Fault.OUTSIDE:
            return "Killed"
        if self.oom_killed or self.signal == "SIGKILL":
            return "OutOfMemory"  # any other SIGKILL comes from outside
        if self.pod_uid:
            return "Pod"
        if self.signal:
            return "Signal"
        return "Hang" if self.exit_code is None else "Exit"

    def as_status(self) -> dict[str, object]:
        found = {
            "worker": self.worker,
            "node": self.node or None,
            "rank": self.rank,
            "pid": self.pid,
            "time": self.time or None,
            "exitCode": self.exit_code,
            "signal": self.signal or None,
            "message": self.message[:2048],
        }
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        where = self.worker if self.rank is None else f"rank {self.rank} ({self.worker})"
        if self.exit_code is None and self.pod_uid:
            return f"{where} {self.message.strip()}"
        if self.exit_code is None and not self.signal:
            return f"{where} hangs: {self.message.strip()}"
        how = f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"
        message = self.message.strip()
        if not message.startswith(how):
            message = f"{how}: {message}"
        return f"{where} failed, {message}"


@dataclass(frozen=True, slots=True)
class Ending:
    complete: bool
    reason: str
    message: str
    cause: FailureRecord | None = None


def recorded_cause(status: Mapping[str, Any]) -> FailureRecord | None:
    cause = status.get("rootCause")
    if not cause:
        return None
    return FailureRecord(
        worker=str(cause.get("worker", "")),
        rank=cause.get("rank"),
        exit_code=cause.get("exitCode"),
        signal=str(cause.get("signal", "")),
        message=str(cause.get("message", "")),
        failed_at=0.0,
        pid=cause.get("pid"),
        node=str(cause.get("node", "")),
        time=str(cause.get("time", "")),
    )


def fault_of_worker(failure: Failure) -> Fault:
    if failure.exception == DEVICE_FAULT:
        return Fault.PLACE
    if failure.signal == "SIGKILL":
        return Fault.CODE if failure.exception == OUT_OF_MEMORY else Fault.OUTSIDE
    if failure.signal == "SIGTERM":
        return Fault.OUTSIDE
    return Fault.ECHO if failure.echo else Fault.CODE


def fault_of_pod(pod: PodView, *, spoken: bool, succeeded: bool = False) -> Fault | None:
    """None: it has not ended, or has succeeded; `spoken`: its agent has ever reported.

    Exit code 0 alone is no success: a shell that pipes torchrun's output, or goes on after it,
    hides torchrun's own code.
    """
    if not pod.ended or (pod.exit_code == 0 and succeeded):
        return None
    if pod.exit_reason == OOM_KILLED:
        return Fault.CODE
    if pod.deleting and not pod.ended_before_deletion:
        return Fault.PLACE
    if has_own_end(pod):
        return Fault.OUTSIDE
    if pod.disrupted or pod.exit_code is None:  # without an exit code the kubelet has rejected it
        return Fault.PLACE
    if pod.exit_code in KILLED_CODES:
        return Fault.OUTSIDE
    if pod.exit_code in START_ERROR_CODES and not spoken:
        return Fault.PLACE
    return Fault.CODE


def has_own_end(pod: PodView) -> bool:
    """Whether the kubelet has ended a pod by the pod's own spec, not for its node's sake.

    Source: pkg/kubelet/eviction/eviction_manager.go, where only an eviction under the pressure of a
    node sets a condition, and pkg/kubelet/active_deadline.go.
    """
    return pod.exit_reason in OWN_ENDS and not pod.disrupted


def name_end(pod: PodView) -> str:
    """What two ends of pods of an index have in common: `FailureRecord.end`."""
    return f"{pod.index} {pod.exit_reason} {pod.exit_code}"


def has_spoken(pod: PodView, observed: Observed) -> bool:
    """Whether a pod's agent has ever reported, to this operator or to an earlier one."""
    return pod.name in observed.agents or pod.name in observed.heard_before


def is_unprepared(agent: AgentView) -> bool:
    """Whether an agent's workers have no group yet: they set themselves up, or failed in that."""
    failed = agent.state is AgentState.FAILED and not (agent.round or agent.gives_up)
    return agent.state is AgentState.PREPARING or failed


def failed_to_prepare(pod: PodView, observed: Observed) -> bool:
    """Whether a pod has ended before its first group, which has lost nothing by that."""
    agent = observed.agents.get(pod.name)
    return pod.ended and agent is not None and is_unprepared(agent)


def has_succeeded(worker: str, observed: Observed) -> bool:
    """Whether a member of the current round has done its work.

    An agent that reports this stays until the job is over: its pod's exit code adds nothing, and
    may lie.
    """
    number = observed.round.number if observed.round else 0
    agent = observed.agents.get(worker)
    if agent is not None and agent.state is AgentState.SUCCEEDED and agent.round == number:
        return True
    pod = observed.pods_by_name.get(worker)
    return pod is not None and pod.stock and pod.succeeded


def has_device_fault(agent: AgentView) -> bool:
    return agent.failure is not None and agent.failure.exception == DEVICE_FAULT


def failed_members(observed: Observed) -> list[AgentView]:
    return [a for a in observed.took_up(observed.round) if a.state is AgentState.FAILED]


def record_of(agent: AgentView) -> FailureRecord:
    told = "its workers have failed; torchrun does not report why, see the log of the pod"
    unexplained = Failure(agent.rank, 1, "", "", told, "", agent.state_since, echo=True)
    failure = agent.failure or unexplained
    message, traceback = failure.message.strip(), failure.traceback.strip()
    return FailureRecord(
        worker=agent.worker,
        rank=failure.rank,
        exit_code=failure.exit_code,
        signal=failure.signal,
        message=traceback if message in traceback else f"{message}\n{traceback}".strip(),
        failed_at=failure.failed_at,
        fault=fault_of_worker(failure),
        pid=failure.pid or None,
    )


def root_cause(failures: Sequence[FailureRecord]) -> FailureRecord | None:
    return min(
        (f for f in failures if f.fault is not Fault.ECHO),
        key=lambda f: (f.failed_at, f.worker),
        default=None,
    )


def describe_end(pod: PodView, *, succeeded: bool = False) -> str:
    """The rest of a sentence that begins with the pod's name."""
    reason = pod.exit_reason or pod.phase
    if reason == OOM_KILLED:
        state = "" if pod.stock else " and the state in its memory"
        return (
            f"ran out of memory (OOMKilled): all its processes{state} are gone; raise its memory "
            "limit or make it use less. With `singleProcessOOMKill: true` of the kubelet "
            "(Kubernetes 1.32 or newer) the kernel kills one process only"
        )
    if pod.exit_code is None or has_own_end(pod):
        return f"has ended ({reason}{': ' + pod.exit_message if pod.exit_message else ''})"
    if pod.exit_code == 0 and not (succeeded or pod.stock):
        return (
            "has ended with exit code 0, but its agent has not reported success; its `command` may "
            "hide how torchrun has ended, as `| tee` and `; echo done` do"
        )
    return f"has ended with exit code {pod.exit_code} ({reason})"
