"""Why workers are missing, in words that a person can act on."""

from collections import defaultdict
from collections.abc import Container, Sequence

from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED, FailedStarts, describe_failed_start

MAX_REASONS = 8  # that a message names: each pod may have one of its own


def explain_shortage(
    pods: Sequence[PodView], speaking: Container[str], refusal: str = "", starts: FailedStarts = NONE_FAILED
) -> str:
    """One clause a cause, the most frequent first, and no more than a few.

    Args:
        pods: the job's.
        speaking: names of the pods that are known to be up.
        refusal: what came of the writes that the API server does not take.
        starts: the pods that have failed to start.
    """
    groups: dict[str, int] = defaultdict(int)
    for pod in pods:
        if pod.ended or pod.deleting or pod.name in speaking:
            continue
        if pod.waiting:
            groups[pod.waiting] += 1
        elif pod.started:
            groups["its agent has not reported yet"] += 1
        elif not pod.node:
            groups["waiting to be scheduled"] += 1
        else:
            groups["starting"] += 1
    there = {pod.index for pod in pods if not (pod.ended or pod.deleting)}
    for index, pod in starts.newest.items():
        if index not in there:
            groups[f"{describe_failed_start(pod)} on node {pod.node} before it could join; tried again after a pause"] += 1
    told = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    clauses = [f"{_pods(count)}: {reason}" for reason, count in told[:MAX_REASONS]]
    if others := sum(count for _, count in told[MAX_REASONS:]):
        clauses.append(f"{_pods(others)}: other reasons")
    if refusal:
        clauses.append(refusal)
    return "; ".join(clauses)


def _pods(count: int) -> str:
    return f"{count} {'pod' if count == 1 else 'pods'}"
