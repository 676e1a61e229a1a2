"""What each change of the group has cost a training. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_pytorch_client.reading.history import HistoryEntry

from elastic_pytorch_local.faults.steps import Change, Step

ON_PURPOSE = (
    "repeated on purpose: each of these changes was announced. The training library repeats none."
)
NOT_SEEN = (
    "How many steps were repeated is not known, as none is seen. Print each step in a line with "
    "its loss, such as `step 10 loss 2.31`, or report it with "
    "elastic_pytorch.report(step=10, loss=2.31)."
)


@dataclass(frozen=True, slots=True)
class ChangeCost:
    event: str
    before: int  # workers
    workers: int  # afterwards
    still_seconds: float | None  # of the standstill; None: unknown
    repeated: int | None  # steps; None: unknown
    planned: bool = False  # announced, so that no step need be repeated
    ready_seconds: float | None = None  # until the replacement trained; None: there was none


def told_cost(
    event: str,
    *,
    planned: bool,
    status: HistoryEntry | None,
    log: Change | None,
    step_seconds: float = 0.0,
    ready_seconds: float | None = None,
) -> ChangeCost:
    """The cost of a change, by the job's status if its script reports steps, else by its log.

    The time of steps between two printed ones, at the pace of the group before, is no pause.
    """
    before = status.before if status and status.before else log.last.world if log else 0
    workers = status.workers if status and status.workers else log.first.world if log else 0
    if status is not None and status.steps_lost is not None:
        still, repeated = status.seconds, status.steps_lost
    elif log is not None:
        advanced = max(0, log.first.number - log.last.number)
        still, repeated = max(0.0, log.pause_seconds - advanced * step_seconds), log.repeated
    else:
        still, repeated = None, None
    return ChangeCost(event, before, workers, still, repeated, planned, ready_seconds)


def step_seconds_before(steps: Sequence[Step], change: Change | None) -> float:
    """The pace of the group before a change, in seconds per step; 0: unknown."""
    last = change.last if change else None
    own = [step for step in steps if last and step.group == last.group and step.at <= last.at]
    if len(own) < 2 or own[-1].number <= own[0].number:
        return 0.0
    return (own[-1].at - own[0].at) / (own[-1].number - own[0].number)


def describe_cost(cost: ChangeCost) -> str:
    still, steps = "a time that is not known", cost.repeated
    if cost.still_seconds is not None:
        still = f"{cost.still_seconds:.1f} s"
    repeated = "an unknown number of" if steps is None else steps
    text = f"{cost.event}, {cost.before} -> {cost.workers} workers: training stood still {still}, "
    text += f"{repeated} step{'' if steps == 1 else 's'} repeated"
    if cost.ready_seconds is not None:
        text += f"; the replacement was ready after {cost.ready_seconds:.0f} s"
    return text


def repeated_on_purpose(costs: Sequence[ChangeCost]) -> int:
    return sum(cost.repeated or 0 for cost in costs if cost.planned)


def cost_table(costs: Sequence[ChangeCost]) -> str:
    head = ("EVENT", "WORKERS", "STOOD STILL", "STEPS REPEATED", "READY AFTER")
    lines = ["{:<24}{:<10}{:>12}{:>16}{:>13}".format(*head)]
    for cost in costs:
        still = "-" if cost.still_seconds is None else f"{cost.still_seconds:.1f} s"
        repeated = "-" if cost.repeated is None else str(cost.repeated)
        ready = "" if cost.ready_seconds is None else f"{cost.ready_seconds:.0f} s"
        workers = f"{cost.before} -> {cost.workers}"
        lines.append(f"{cost.event:<24}{workers:<10}{still:>12}{repeated:>16}{ready:>13}".rstrip())
    if count := repeated_on_purpose(costs):
        lines.append(f"{count} {'step was' if count == 1 else 'steps were'} {ON_PURPOSE}")
    elif any(cost.repeated is None for cost in costs):
        lines.append(NOT_SEEN)
    elif costs:
        lines.append("No step was repeated on purpose.")
    return "\n".join(lines)
