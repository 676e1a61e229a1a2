"""The plan of a job that has ended."""

from dataclasses import replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import is_true
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.cleanup import clean_up
from elastic_pytorch_operator.planning.failed_writes import mark_reported, unreported
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.reporting.events import record_refusals
from elastic_pytorch_operator.planning.stock.stores import delete_stores
from elastic_pytorch_operator.planning.workers.pod_group import plan_pod_group
from elastic_pytorch_operator.spec.job import Job


def plan_ended(job: Job, observed: Observed, memory: Memory) -> Plan:
    """What is left to do for a job that has ended."""
    ended_at = observed.now if memory.ended_at is None else memory.ended_at
    actions, recheck = clean_up(job, observed, ended_at)
    verdict = "complete" if is_true(job.status, names.COMPLETE) else "failed"
    actions += record_refusals(unreported(memory.failed))
    actions += plan_pod_group(job, observed, memory.failed, ended=True).actions
    actions += delete_stores(observed, keep=0, why="the job has ended")
    memory = replace(memory, ended_at=ended_at, failed=mark_reported(memory.failed))
    return Plan(memory, None, verdict=verdict, actions=tuple(actions), recheck_at=recheck)
