"""Why workers are missing, in words that a person can act on."""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.planning.failures.start_backoff import (
    FailedStarts,
    describe_failed_start,
)
from elastic_pytorch_operator.planning.workers.liveness import Candidate

# If a new leader has no report of a group in one of these states, it probably still trains.
TRAINED = (names.RUNNING, names.RESIZING)
MAX_REASONS = 8  # in a message: each pod may have one of its own


def explain_shortage(
    pods: Sequence[PodView],
    speaking: Container[str],
    starts: FailedStarts,
    preparing: Container[str],
    torn: Container[str],
) -> str:
    """One clause for each cause, the most frequent first; `speaking` pods are known to be up."""
    groups: dict[str, int] = defaultdict(int)
    for pod in pods:
        if not pod.stays:
            continue
        if pod.name in preparing:
            groups["its script runs its set-up (spec.prepare)"] += 1
            continue
        if pod.name in torn:
            groups["ready, and waits for the other workers of its unit (spec.unitReplicas)"] += 1
            continue
        if pod.name in speaking:
            continue
        if pod.waiting:
            groups[pod.waiting] += 1
        elif pod.started:
            groups["its agent has not reported yet"] += 1
        elif not pod.node:
            groups["waiting to be scheduled"] += 1
        else:
            groups["starting"] += 1
    there = {pod.index for pod in pods if pod.stays}
    for index, pod in starts.newest.items():
        if index not in there:
            failed = f"{describe_failed_start(pod)} on node {pod.node}"
            groups[f"{failed}; the operator will retry after a delay"] += 1
    counted = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    clauses = [f"{_pods(count)}: {reason}" for reason, count in counted[:MAX_REASONS]]
    if others := sum(count for _, count in counted[MAX_REASONS:]):
        clauses.append(f"{_pods(others)}: other reasons")
    return "; ".join(clauses)


def _pods(count: int) -> str:
    return f"{count} {'pod' if count == 1 else 'pods'}"


def may_train(old: Mapping[str, Any], candidates: Sequence[Candidate], size: int) -> bool:
    unheard = any(candidate.unheard for candidate in candidates)
    return not size and old.get("state") in TRAINED and unheard


def unheard_group(candidates: Sequence[Candidate]) -> list[Condition]:
    unheard = sum(candidate.unheard for candidate in candidates)
    workers = "1 worker has" if unheard == 1 else f"{unheard} workers have"
    running = f"{workers} not reported since a replica of the operator began to lead"
    running += "; the group is probably training"
    rest = "no worker of the group has reported; see condition Running"
    return [
        Condition(names.RUNNING, None, names.WORKERS_UNHEARD, running),
        Condition(names.RESIZING, None, names.WORKERS_UNHEARD, rest),
        Condition(names.DEGRADED, None, names.WORKERS_UNHEARD, rest),
    ]
