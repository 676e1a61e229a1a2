"""Which part of an interruption took how long. Pure: moments in, seconds out.

The phases follow each other, so together they are the interruption:

- `detection`: from the disturbance until the operator declares a round, with the pause of a crash loop;
- `stop`: until the remaining members have stopped their processes;
- `wait`: until the round that trains is declared: a job below its minimum waits for pods, or a group changes again before its first step;
- `prepare`: the end of that wait, if nothing trains before: since the worker that was ready last has begun its set-up (`spec.prepare`);
- `start`: until the slowest pod has started its processes;
- `init`: until all processes have joined their process group;
- `firstStep`: until the first step is reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DETECTION, STOP, WAIT, PREPARE, START, INIT, FIRST_STEP = PHASES = (
    *("detection", "stop", "wait", "prepare", "start", "init", "firstStep"),
)


@dataclass(frozen=True, slots=True)
class Milestones:
    """When each phase of an interruption was over, monotonic seconds; None: not known.

    Attributes:
        since: when the group was disturbed.
        declared_at: when the operator declared the first round after that.
        stopped_at: when the remaining members had stopped.
        set_up_at: when the worker that was ready last began its set-up; None: no set-up was waited for.
        regrouped_at: when the operator declared the round that trains.
        started_at: when the processes of all members had been started.
        formed_at: when their process group had formed.
        stepped_at: when the first step was reported.
    """

    since: float
    declared_at: float | None = None
    stopped_at: float | None = None
    set_up_at: float | None = None
    regrouped_at: float | None = None
    started_at: float | None = None
    formed_at: float | None = None
    stepped_at: float | None = None


def split_interruption(milestones: Milestones) -> dict[str, float]:
    """Returns the seconds of each phase whose end is known, in their order.

    A phase whose end is not known is left out, and its time belongs to the next one that is known. No phase is negative: the moments come
    from several pods, and one may begin its next phase before another has ended this one.
    """
    ends = (
        milestones.declared_at,
        milestones.stopped_at,
        milestones.regrouped_at if milestones.set_up_at is None else milestones.set_up_at,
        None if milestones.set_up_at is None else milestones.regrouped_at,
        milestones.started_at,
        milestones.formed_at,
        milestones.stepped_at,
    )
    last = milestones.since
    # What is over when the first step is reported cannot have ended after it.
    end = milestones.stepped_at
    phases: dict[str, float] = {}
    for phase, moment in zip(PHASES, ends, strict=True):
        if moment is not None:
            until = max(last, moment if end is None else min(moment, end))
            phases[phase] = until - last
            last = until
    return phases


def slowest_phase(phases: Mapping[str, float]) -> str:
    """Returns the phase that took longest, the earlier one of two that are equal; empty: none is known."""
    return max(phases, key=lambda phase: phases[phase], default="")
