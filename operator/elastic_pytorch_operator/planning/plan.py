"""Decides everything about one job at one moment. Pure: no I/O, no clock, no randomness."""

from elastic_pytorch_operator.api.conditions import has_ended
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan_ended import plan_ended
from elastic_pytorch_operator.planning.plan_rounds import plan_rounds
from elastic_pytorch_operator.planning.plan_stock import plan_stock
from elastic_pytorch_operator.spec.job import Job


def plan(job: Job, observed: Observed, memory: Memory) -> Plan:
    """Decides what to do for a job now.

    Deciding again on the outcome of having done it yields nothing more to do.
    """
    if job.deleting or not job.ours:
        return Plan(memory)  # the garbage collector removes what the job owns
    if has_ended(job.status):
        return plan_ended(job, observed, memory)
    return plan_stock(job, observed, memory) if job.stock else plan_rounds(job, observed, memory)
