"""What the operator remembers of a job between two plans, and what a plan is."""

from dataclasses import dataclass, field

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.actions import Action
from elastic_pytorch_operator.model.failure import recorded_cause
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.failed_writes import Answers
from elastic_pytorch_operator.planning.failures.budget import Budget, backoff_seconds
from elastic_pytorch_operator.planning.failures.group_restart import group_restarts
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall
from elastic_pytorch_operator.planning.nodes.objections import Objections
from elastic_pytorch_operator.planning.reporting.goodput import Account
from elastic_pytorch_operator.planning.reporting.interruption import (
    NO_INTERRUPTIONS,
    Interruption,
    Interruptions,
    recall_interruption,
)
from elastic_pytorch_operator.planning.reporting.status_writes import Written
from elastic_pytorch_operator.planning.reporting.stragglers import (
    NO_STRAGGLERS,
    Stragglers,
    read_stragglers,
)
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import CheckpointWait
from elastic_pytorch_operator.planning.stock.group import StockMemory
from elastic_pytorch_operator.planning.workers.schedule_timeout import (
    NO_WAIT,
    ScheduleWait,
    pause_seconds,
)
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class Memory:
    """Its loss does the job no harm."""

    budget: Budget = field(default_factory=Budget)
    nodes: Objections = ()
    interruptions: Interruptions = NO_INTERRUPTIONS
    stall: Stall | None = None
    schedule: ScheduleWait = NO_WAIT
    checkpoint_wait: CheckpointWait | None = None
    # Workers:
    victims: frozenset[str] = frozenset()  # the operator wants them gone
    excused: frozenset[str] = frozenset()  # lost, but judged by a rule instead of `onPodLoss`
    leaving: frozenset[str] = frozenset()  # they have left the group since SIGTERM
    # Monotonic seconds of this operator; None: not yet, or unknown.
    active_since: float | None = None  # the start of the job, or its last resumption
    grown_at: float | None = None
    ended_at: float | None = None
    answers: Answers = field(default_factory=Answers)
    written: Written = field(default_factory=Written)
    stock: StockMemory | None = None
    stragglers: Stragglers = NO_STRAGGLERS
    account: Account | None = None  # None: not read from the status yet

    def begin_active(self, now: float, *, stopped: bool) -> float | None:
        return None if stopped else now if self.active_since is None else self.active_since


@dataclass(frozen=True, slots=True)
class Plan:
    memory: Memory
    round: Round | None = None
    nudge: bool = False
    dump_stacks: bool = False
    resumed: Interruption | None = None
    # Of the declared round, if it begins a training; None: it has waited for no set-up.
    set_up_seconds: float | None = None
    # `complete` or `failed`. Agents get it after the actions have succeeded, as what they act on
    # must be in the cluster first.
    verdict: str | None = None
    actions: tuple[Action, ...] = ()  # in order; creates may be parallel
    recheck_at: float | None = None
    # When the group may change, as a wait ends or a silent worker counts as lost.
    urgent_at: float | None = None
    # When an agent will have been silent for too long; no plan is due before one is late.
    silent_at: float | None = None


def recall(job: Job, now: float, time: str) -> Memory:
    progress, failures = job.status.get("progress") or {}, int(job.status.get("failures", 0))
    running = find_condition(job.status, names.RUNNING)
    backing_off = running.get("status") == "False" and running.get("reason") == names.BACKING_OFF
    state = read_operator_state(job.status)
    timeouts, step = state.schedule_timeouts, int(progress.get("step", 0))
    paused = timeouts > 0 and running.get("reason") == names.SCHEDULE_TIMEOUT
    # The status lacks failures that a rule keeps from counting; a pause means two in a row.
    in_a_row = max(failures, 2 if backing_off else 0)
    started, grown = str(job.status.get("startTime") or ""), state.last_growth_time
    return Memory(
        active_since=now - seconds_between(started, time) if started else None,
        grown_at=now - seconds_between(grown, time) if grown else None,
        schedule=ScheduleWait(
            timeouts,
            retry_at=now + pause_seconds(job.uid, timeouts) if paused else 0.0,
            generation=job.generation,
        ),
        budget=Budget(
            failures=failures,
            total=int(job.status.get("totalFailures", 0)),
            in_a_row=in_a_row,
            # The agents of a group that backs off still report the failure already counted.
            counted_round=int(job.status.get("round", 0)) if backing_off and not job.stock else 0,
            step=step,
            backoff_until=now + backoff_seconds(in_a_row) if backing_off else 0.0,
            last=recorded_cause(job.status) if backing_off else None,
            group_restarts=group_restarts(job),
        ),
        interruptions=Interruptions(
            recall_interruption(state.interruption, now, time),
            unled_step=step if step and job.status.get("worldSize") else None,
        ),
        stragglers=read_stragglers(job.status),
        # Another leader may just have written the progress.
        written=Written(at=now),
    )
