"""RestartGroup of `failurePolicy.rules`: all worker pods of a job are replaced, once for a failure.

`status.groupRestarts` counts the requests, and each pod carries the count at its creation. A
failure in a pod with the count N asks for N + 1, so all operators that find it ask for the same.
Pods with a lower count than the stored one are deleted, and none before the count is stored.
"""

from dataclasses import dataclass

from elastic_pytorch_operator.model.failure import FailureRecord, recorded_cause
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.spec.failure_rules import FailureAction
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class GroupRestart:
    asked: bool = False  # the count is yet to be stored; nothing may change before
    under_way: bool = False  # asked for, or workers are yet to be replaced
    stops: bool = False  # the current round has such workers and must stop
    cause: FailureRecord | None = None

    def explain(self) -> str:
        rule = self.cause.rule if self.cause else None
        cause = self.cause or "see status.rootCause"
        return f"{rule or 'failurePolicy.rules'} replaces all workers: {cause}"


NO_RESTART = GroupRestart()


def group_restarts(job: Job) -> int:
    return int(job.status.get("groupRestarts", 0))


def outdated_pods(job: Job, observed: Observed) -> frozenset[str]:
    stored = group_restarts(job)
    outdated = (pod for pod in observed.pods if pod.group_restarts < stored)
    return frozenset(pod.name for pod in outdated if not pod.ended)


def find_group_restart(job: Job, observed: Observed, budget: Budget) -> GroupRestart:
    asked, outdated = budget.group_restarts > group_restarts(job), outdated_pods(job, observed)
    if not asked and not outdated:
        return NO_RESTART
    cause, rule = budget.last, budget.last.rule if budget.last else None
    if rule is None or rule.action is not FailureAction.RESTART_GROUP:
        cause = recorded_cause(job.status)
    stops = not outdated.isdisjoint(observed.ranks)
    return GroupRestart(asked, under_way=True, stops=stops, cause=cause)
