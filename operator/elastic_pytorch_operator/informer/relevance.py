"""Whether a change is one that a plan reads. Most changes of pods are not: annotations, conditions, the states of init containers."""

from collections.abc import Collection
from dataclasses import replace

from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.spec.failure_rules import PodCondition
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job


def pods_alike(before: PodView, after: PodView, read: Collection[PodCondition]) -> bool:
    """Whether a plan makes no difference between a pod as it was and as it is.

    Args:
        before: the pod as it was.
        after: the same pod now.
        read: the conditions that the rules of its job name. Plans read no others.
    """
    if before.conditions == after.conditions:
        return before == after
    return before.conditions.intersection(read) == after.conditions.intersection(read) and before == replace(
        after, conditions=before.conditions
    )


def plans_alike(before: Job | InvalidJob, after: Job | InvalidJob) -> bool:
    """Whether the plan of a job stays what it was, for all that the job says: only its metadata has changed."""
    return isinstance(before, Job) and isinstance(after, Job) and before == replace(after, version=before.version)
