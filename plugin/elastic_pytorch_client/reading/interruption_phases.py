"""An interruption and its phases: their names, when one is slow, and what to set then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from elastic_pytorch_client.reading.text import parse_number, parse_time, parse_whole

# As the operator writes them, in their order (docs/internals/rounds.md).
DETECTION, STOP, WAIT, PREPARE, START, INIT, FIRST_STEP = PHASES = (
    *("detection", "stop", "wait", "prepare", "start", "init", "firstStep"),
)
PHASE_NAMES: Final[Mapping[str, str]] = MappingProxyType({phase: phase for phase in PHASES} | {FIRST_STEP: "first step"})
# What a healthy job of a few workers stays below on two busy cores. A slower phase may be inherent: advice, no verdict.
SLOW_SECONDS: Final[Mapping[str, float]] = MappingProxyType(
    {DETECTION: 2.0, STOP: 3.0, WAIT: 15.0, PREPARE: 15.0, START: 2.0, INIT: 5.0, FIRST_STEP: 10.0}
)
MANY_STEPS = 20

_ADVICE = {
    DETECTION: "A process that fails is noticed at once, a node that dies after three seconds without a heartbeat. "
    "Look for a busy node of the worker, of the operator or of the API server.",
    STOP: "The script's SIGTERM handler takes that long, or the script ignores SIGTERM until it is killed. "
    "Save within a few seconds of SIGTERM, or lower terminationGracePeriodSeconds of the template.",
    WAIT: "Fewer than minReplicas workers were ready, or one joined before the group's first step. "
    "Lower minReplicas, keep room for a replacement, or pull the image onto the nodes beforehand. "
    "If workers start slowly and join one by one, raise resizePolicy.minSecondsBetweenGrowths.",
    PREPARE: "The group waited for the set-up of a script (spec.prepare). "
    "Set spec.spares, so that a worker that is set up takes over, lower minReplicas, or shorten the set-up.",
    START: "The processes start cold: a new interpreter for each. "
    "Let the agent start the script itself, without a shell or a launcher before it.",
    INIT: "Imports, the GPU's set-up, and init_process_group are in it. "
    "Name slow imports in ELASTIC_PYTORCH_PRELOAD; check that the pods reach each other (NCCL_SOCKET_IFNAME, NetworkPolicies).",
    FIRST_STEP: "Model, checkpoint, data and compilation are in it. "
    "Keep checkpoints on fast storage, keep compile caches on a volume, or let the training library restore from memory.",
}
_STEPS_LOST = (
    "Write checkpoints more often, or train with the training library, which keeps each step that it commits in memory."
)


@dataclass(frozen=True, slots=True)
class Interruption:
    """An entry of `status.recentInterruptions`: a failure, a loss or a resize has interrupted the training. Old ones are condensed.

    Attributes:
        cause: one word.
        seconds: how long it took, or all of them together.
        steps_lost: the steps that were done again.
        phases: the seconds of each phase that is known, in their order.
        slowest: the phase that took longest; empty if none is known.
        round: the round that has trained since.
        ended: when it was over; None: not known.
        count: the number of interruptions; above 1, the other attributes are their sums, and those of the last one.
        before: the number of workers that trained before; None: not known.
        after: the number of workers that have trained since; None: not known.
    """

    cause: str
    seconds: float | None
    steps_lost: int | None
    phases: Mapping[str, float] = field(default_factory=dict)
    slowest: str = ""
    round: int = 0
    ended: datetime | None = None
    count: int = 1
    before: int | None = None
    after: int | None = None


def view_interruption(interruption: Mapping[str, Any]) -> Interruption:
    """Returns an interruption from its entry in a status."""
    seconds = {phase: parse_number(interruption.get("phaseSeconds", {}).get(phase)) for phase in PHASES}
    return Interruption(
        cause=str(interruption.get("cause", "")),
        seconds=parse_number(interruption.get("seconds")),
        steps_lost=parse_whole(interruption.get("stepsLost")),
        phases={phase: taken for phase, taken in seconds.items() if taken is not None},
        slowest=str(interruption.get("slowestPhase", "")),
        round=int(interruption.get("round", 0)),
        ended=parse_time(interruption.get("time")),
        count=int(interruption.get("count", 1)),
        before=parse_whole(interruption.get("from")),
        after=parse_whole(interruption.get("to")),
    )


def name_slowest(phases: Mapping[str, float], slowest: str) -> str:
    """The slowest phase with its time, for people; empty if none is known."""
    return f"{PHASE_NAMES.get(slowest, slowest)} ({phases.get(slowest, 0.0):.1f} s)" if slowest else ""


def advise(phases: Mapping[str, float], steps_lost: int | None, *, grace_seconds: float | None = None) -> list[str]:
    """What was slow in an interruption, and what to set: a line for each slow phase, and one for steps done again.

    Args:
        phases: the seconds of each phase that is known.
        steps_lost: steps done again; None: not known.
        grace_seconds: the pods' terminationGracePeriodSeconds; None: not known.
    """
    lines = []
    for phase in PHASES:
        seconds = phases.get(phase, 0.0)
        if seconds >= SLOW_SECONDS[phase]:
            grace = f" It is {grace_seconds:.0f} now." if phase == STOP and grace_seconds is not None else ""
            lines.append(f"{PHASE_NAMES[phase]} took {seconds:.1f} s. {_ADVICE[phase]}{grace}")
    if steps_lost is not None and steps_lost >= MANY_STEPS:
        lines.append(f"{steps_lost} steps were repeated. {_STEPS_LOST}")
    return lines
