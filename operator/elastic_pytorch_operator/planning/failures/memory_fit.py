"""Groups that are too small for their workers' memory: a smaller group has larger shares of the batch, and of a sharded model.

The loss of a node must not become the failure of the script. A group may be smaller than any that has trained, and run out of memory in
its first steps. That does not count, and the job waits for the smallest size that has trained. `status.operatorState` stores it: no other
object tells. A new spec is tried as it stands.
"""

import re
from dataclasses import dataclass, replace

from elastic_pytorch_operator.model.failure import OUT_OF_MEMORY, Fault
from elastic_pytorch_operator.model.observed import Failure, Observed
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.spec.job import Job

FIRST_STEPS = 10  # in these a group comes to the most memory that it needs: all of the optimizer's state is there
_WORDS = re.compile(r"\bOutOfMemoryError\b|\b(CUDA|HIP) error: out of memory|CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The sizes of a job's group that its workers' memory is enough for, as far as it is known.

    Attributes:
        fits: the smallest group that has trained for more than the first steps; 0: none has yet.
        needed: no smaller group is formed; 0: any may be.
    """

    fits: int = 0
    needed: int = 0

    @property
    def text(self) -> str:
        """Why a group needs more workers than the spec says; empty: it does not."""
        return f"a smaller group than {self.needed} workers has run out of memory in its first steps" if self.needed else ""


ANY_SIZE = MemoryFit()


def recall_fit(job: Job) -> MemoryFit:
    """What a job's status says of the sizes that fit."""
    needed = read_operator_state(job.status).needed_replicas
    return MemoryFit(needed, needed if job.status.get("observedGeneration") == job.generation else 0)


def judge_size(fit: MemoryFit, target: Target, observed: Observed, failure: RoundFailure) -> tuple[MemoryFit, RoundFailure]:
    """Finds out whether the group has enough memory. If not, because it is too small, its failure is not the script's.

    Args:
        fit: what is known.
        target: the wanted size; what cannot be reached is not waited for.
        observed: the group, and its steps.
        failure: of the current round.

    Returns:
        What is known now, and the failure.
    """
    round_ = observed.round
    if round_ is None or not round_.size:
        return fit, failure
    if _steps(observed) > FIRST_STEPS:
        return replace(fit, fits=min(fit.fits or round_.size, round_.size)), failure
    cause = failure.cause
    agent = observed.agents.get(cause.worker) if cause is not None else None
    if cause is None or agent is None or not _out_of_memory(agent.failure) or round_.size >= fit.fits:
        return fit, failure
    cause = replace(cause, message=f"{round_.size} workers are too few, {fit.fits} were enough: {cause.message}")
    if fit.fits > target.wanted:
        return fit, replace(failure, cause=cause)
    return replace(fit, needed=fit.fits), replace(failure, cause=replace(cause, fault=Fault.SIZE))


def _steps(observed: Observed) -> int:
    """How many steps the current group has done."""
    number = observed.round.number if observed.round else 0
    reports = [a.progress for name in observed.ranks if (a := observed.agents.get(name)) is not None and a.round == number]
    return max((r.step - r.first_step + 1 for r in reports if r.step is not None and r.first_step is not None), default=0)


def _out_of_memory(failure: Failure | None) -> bool:
    return failure is not None and (
        failure.exception == OUT_OF_MEMORY or _WORDS.search(f"{failure.exception} {failure.message}") is not None
    )
