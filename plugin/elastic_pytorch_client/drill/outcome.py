"""What a drill has shown."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_client.drill.faults import Fault, PlannedFault
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.interruption_phases import PHASES, advise
from elastic_pytorch_client.reading.pods.start import PodStart


@dataclass(frozen=True, slots=True)
class SeenInterruption:
    """An interruption, as the drill saw it.

    Attributes:
        interruption: as the operator measured it.
        after_seconds: from what was done to the job until its status showed that it trained again.
        before: the number of workers before.
        workers: and after.
    """

    interruption: HistoryEntry
    after_seconds: float
    before: int
    workers: int


@dataclass(slots=True)
class Outcome:
    """What became of one fault.

    Attributes:
        planned: what was to be done.
        interruptions: in their order.
        whole_seconds: until all wanted workers trained; None: they did not.
        starts: of the pods that replaced others.
        error: why it is not known that the job recovered; empty: it did, or the fault was left out.
        grace_seconds: the pods' terminationGracePeriodSeconds; None: not known.
    """

    planned: PlannedFault
    interruptions: list[SeenInterruption] = field(default_factory=list)
    whole_seconds: float | None = None
    starts: list[PodStart] = field(default_factory=list)
    error: str = ""
    grace_seconds: float | None = None

    @property
    def fault(self) -> Fault:
        """What was done."""
        return self.planned.fault

    def to_json(self) -> dict[str, Any]:
        """As `-o json` has it."""
        found: dict[str, Any] = {"fault": self.fault.value, "does": self.planned.does}
        if self.planned.skipped:
            return found | {"skipped": self.planned.skipped}
        found["interruptions"] = [
            {
                "cause": seen.interruption.cause,
                "seconds": seen.interruption.seconds,
                "trainsAgainAfterSeconds": round(seen.after_seconds, 2),
                "stepsLost": seen.interruption.steps_lost,
                "workersBefore": seen.before,
                "workers": seen.workers,
                "phaseSeconds": dict(seen.interruption.phases),
                "slowestPhase": seen.interruption.slowest,
            }
            for seen in self.interruptions
        ]
        whole = None if self.whole_seconds is None else round(self.whole_seconds, 2)
        return found | {"wholeAfterSeconds": whole, "advice": what_to_set([self]), "error": self.error}


def drill_json(namespace: str, job: str, planned: Sequence[PlannedFault], outcomes: Sequence[Outcome] | None) -> dict[str, Any]:
    """The whole drill as JSON.

    Args:
        namespace: of the job.
        job: its name.
        planned: all chosen faults.
        outcomes: of those that were done; None: nothing was done.
    """
    about = {"namespace": namespace, "job": job, "dryRun": outcomes is None}
    if outcomes is None:
        faults = [
            {"fault": p.fault.value, "does": p.does, **({"skipped": p.skipped} if p.skipped else {"cost": p.cost})}
            for p in planned
        ]
        return about | {"faults": faults}
    done = {outcome.fault: outcome for outcome in outcomes}
    shown = [done.get(p.fault) or Outcome(p if p.skipped else p.skip("the drill ended before it")) for p in planned]
    return about | {"recovered": recovered(outcomes), "faults": [outcome.to_json() for outcome in shown]}


def what_to_set(outcomes: Sequence[Outcome]) -> list[str]:
    """What was slow in some faults, and what to set: each phase once, with the longest time that it took."""
    interruptions = [seen.interruption for outcome in outcomes for seen in outcome.interruptions]
    longest = {phase: max((found.phases.get(phase, 0.0) for found in interruptions), default=0.0) for phase in PHASES}
    steps_lost = max((found.steps_lost for found in interruptions if found.steps_lost is not None), default=None)
    grace_seconds = next((outcome.grace_seconds for outcome in outcomes), None)
    starts = [start.advice() for outcome in outcomes for start in outcome.starts]
    return [*advise(longest, steps_lost, grace_seconds=grace_seconds), *dict.fromkeys(filter(None, starts))]


def recovered(outcomes: Sequence[Outcome]) -> bool:
    """Whether the job recovered from all that was done to it."""
    return all(not outcome.error for outcome in outcomes)
