"""What the operator remembers of a job between two plans, and what a plan is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator.model.actions import Action
from elastic_pytorch_operator.model.observed import UnreadableObject
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.failed_writes import FailedWrites, forget_refused_pods, unreported
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall
from elastic_pytorch_operator.planning.nodes.objections import Objections
from elastic_pytorch_operator.planning.reporting.events import News
from elastic_pytorch_operator.planning.reporting.goodput import Account
from elastic_pytorch_operator.planning.reporting.interruption import Interruption
from elastic_pytorch_operator.planning.reporting.stragglers import NO_STRAGGLERS, Stragglers
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import CheckpointWait
from elastic_pytorch_operator.planning.stock.group import StockMemory
from elastic_pytorch_operator.planning.workers.schedule_timeout import NO_WAIT, ScheduleWait
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class Memory:
    """What the operator remembers of a job from one plan to the next; all of it can be lost without harm to the job.

    Attributes:
        nodes: what speaks against nodes.
        unled_step: the last step of a group that trained under another leader, as long as no round of it is known; None: there is none.
        stall: the round that hangs, if it does.
        schedule: whether the job has given its places back, or is about to.
        checkpoint_wait: the change of the group that waits for a checkpoint, if one does.
        leaving: workers that have left the group since they were told to stop, and whose pods are still there.
        excused: lost members on which a rule has decided.
        grown_at: when the group last grew, monotonic seconds; None: never, as far as is known.
        active_since: when the job began, or was resumed, monotonic seconds.
        failed: the writes that the API server has not accepted.
        invalid: why the API server can make no pod from the template; None: it has not said so.
        generation: of the spec that the last plan was made for.
        tried_generation: the generation of the spec whose pods the API server has been asked about by a dry run.
        written: the status that was last written.
        written_at: when that was.
        ended_at: when this operator first saw the job ended.
        stock: of a group that stock torchrun forms.
        stragglers: the ranks that are slow.
        unreadable: the job's objects that could not be read at the last plan.
        account: what its time was spent on; None: not read from the status yet.
    """

    budget: Budget = field(default_factory=Budget)
    nodes: Objections = ()
    interruption: Interruption | None = None
    unled_step: int | None = None
    stall: Stall | None = None
    schedule: ScheduleWait = NO_WAIT
    checkpoint_wait: CheckpointWait | None = None
    leaving: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()
    grown_at: float | None = None
    active_since: float | None = None
    failed: FailedWrites = field(default_factory=dict)
    invalid: str | None = None
    generation: int | None = None
    tried_generation: int = 0
    written: Mapping[str, Any] | None = None
    written_at: float = 0.0
    ended_at: float | None = None
    stock: StockMemory | None = None
    stragglers: Stragglers = NO_STRAGGLERS
    unreadable: tuple[UnreadableObject, ...] = ()
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    Attributes:
        round: to be declared to the agents; None: the current one stands.
        nudge: ask the agents to report at once.
        dump_stacks: have the agents of the current round write down where their workers are.
        set_up_seconds: what the round that is declared has waited for, if it begins a training; None: it waited for no set-up.
        verdict: what to tell the agents of a job that has ended: `complete` or `failed`. Only after the actions have
            succeeded: what an agent acts on must be in the cluster first.
        actions: in the order in which they are to be done; creates may go in parallel.
        memory: what to remember.
        recheck_at: when to plan again if nothing happens before, monotonic seconds.
        urgent_at: when that may change the group: a worker is lost by then if nothing is heard of it, or a wait is over.
    """

    memory: Memory
    round: Round | None = None
    nudge: bool = False
    dump_stacks: bool = False
    set_up_seconds: float | None = None
    verdict: str | None = None
    actions: tuple[Action, ...] = field(default_factory=tuple)
    recheck_at: float | None = None
    urgent_at: float | None = None


def notice_spec(job: Job, memory: Memory) -> Memory:
    """The memory for the job's present spec: what another one's pods were refused says nothing about this one's."""
    changed = memory.generation not in (None, job.generation)
    failed = forget_refused_pods(memory.failed) if changed else memory.failed
    return replace(memory, generation=job.generation, failed=failed)


def find_news(before: Memory, after: Memory, declared: Round | None, ending: Ending | None) -> News:
    """What a plan finds out.

    Args:
        before: what was remembered.
        after: what is remembered from now on; no event has reported its failed writes yet.
        declared: the round that the plan declares.
        ending: how the plan ends the job.
    """
    over = (
        after.interruption is not None and after.interruption.seconds is not None and after.interruption != before.interruption
    )
    return News(
        declared,
        after.interruption if over else None,
        ending,
        unreported(after.failed),
        failed=after.budget.last if after.budget.last is not before.budget.last else None,
    )
