"""The phases of an interruption: their names, when one is slow, and what to set then."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

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
