"""The phases of an interruption, and their names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# As the operator writes them, in their order (docs/internals/rounds.md).
DETECTION, STOP, WAIT, PREPARE, START, INIT, FIRST_STEP = PHASES = (
    *("detection", "stop", "wait", "prepare", "start", "init", "firstStep"),
)
PHASE_NAMES: Final[Mapping[str, str]] = MappingProxyType({phase: phase for phase in PHASES} | {FIRST_STEP: "first step"})


def name_slowest(phases: Mapping[str, float], slowest: str) -> str:
    """The slowest phase with its time, for people; empty if none is known."""
    return f"{PHASE_NAMES.get(slowest, slowest)} ({phases.get(slowest, 0.0):.1f} s)" if slowest else ""
