"""RestartGroup of `failurePolicy.rules`: all worker pods of a job are replaced, once for a failure.

The cluster's objects hold all that is needed. `status.groupRestarts` counts how often it was asked for, and each pod carries the count of
the time when it was made. A failure in a pod with the count N asks for N + 1: each operator that finds it, before or after a restart,
asks for the same. Pods with a lower count than the stored one are deleted, so none is deleted before the new count is stored.
"""

from dataclasses import dataclass

from elastic_pytorch_operator.model.failure import recorded_cause
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.spec.failure_rules import FailureAction
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class GroupRestart:
    """Where a restart of the group stands.

    Attributes:
        asked: the count is yet to be stored; nothing may change before.
        stops: why the current round is to stop; empty: it has no worker that is to be replaced.
        text: for people; empty: no restart is going on.
    """

    asked: bool = False
    stops: str = ""
    text: str = ""


NO_RESTART = GroupRestart()


def group_restarts(job: Job) -> int:
    """How often all worker pods were to be replaced, as it is stored."""
    return int(job.status.get("groupRestarts", 0))


def outdated_pods(job: Job, observed: Observed) -> frozenset[str]:
    """The worker pods that are to be replaced and have not ended yet."""
    stored = group_restarts(job)
    return frozenset(pod.name for pod in observed.pods if pod.group_restarts < stored and not pod.ended)


def find_group_restart(job: Job, observed: Observed, budget: Budget) -> GroupRestart:
    """Returns where the restart of a job's group stands."""
    asked, outdated = budget.group_restarts > group_restarts(job), outdated_pods(job, observed)
    if not asked and not outdated:
        return NO_RESTART
    last = budget.last
    if last is not None and last.rule is not None and last.rule.action is FailureAction.RESTART_GROUP:
        text = f"{last.rule} replaces all workers: {last}"
    else:
        text = f"failurePolicy.rules replaces all workers: {recorded_cause(job.status) or 'see status.rootCause'}"
    return GroupRestart(asked, "" if outdated.isdisjoint(observed.ranks) else text, text)
