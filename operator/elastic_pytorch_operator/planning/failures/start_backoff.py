"""Pods that end before they join, or soon after by their own spec: their successors wait a while.

Each index has a count, as the progress of other workers resets that of the job. Like Kubernetes'
`backoffLimitPerIndex`, it is on the pod, so that a change of leader forgets nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.model.failure import (
    RUNTIME_REASONS,
    START_ERROR_CODES,
    describe_end,
    failed_to_prepare,
    has_own_end,
    has_spoken,
)
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.planning.failures.budget import backoff_seconds

LASTING_SECONDS = 600.0  # of a container, until the kubelet forgets its earlier restarts
NO_NODE = "-"  # of an end for which no node is to blame
MAX_FAILED_STARTS = 8  # on a pod; the pause is at its longest by then
ATTEMPTS = 6  # of each index, before a job that has never begun is given up: some half a minute


@dataclass(frozen=True, slots=True)
class FailedStarts:
    # By worker index; `nodes` are those on which its newest pods have failed in a row.
    nodes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    backoff_until: Mapping[int, float] = field(default_factory=dict)
    newest: Mapping[int, PodView] = field(default_factory=dict)


NONE_FAILED = FailedStarts()


def find_failed_starts(observed: Observed) -> FailedStarts:
    ended = sorted((p for p in observed.pods if p.ended), key=lambda pod: pod.created_at)
    newest = {pod.index: pod for pod in ended if not pod.deleting}
    nodes = {
        index: before_and_now
        for index, pod in newest.items()
        if (before_and_now := _failed_on(pod, observed))
    }
    failed = {index: newest[index] for index in nodes}
    return FailedStarts(
        nodes=nodes,
        backoff_until={i: p.ended_at + backoff_seconds(len(nodes[i])) for i, p in failed.items()},
        newest=failed,
    )


def why_given_up(starts: FailedStarts, observed: Observed, wanted: int, max_failures: int) -> str:
    """Empty: the job goes on, also if a kubelet rejects its pods, as a node may take them later."""
    most = min(max_failures, MAX_FAILED_STARTS - 1)
    for index, pod in sorted(starts.newest.items()):
        tries = len(starts.nodes[index])
        if index < wanted and tries > most and failed_to_prepare(pod, observed):
            return (
                f"no group can form: {pod.name} {describe_failed_start(pod)}; "
                f"so have {tries} pods of worker {index} in a row"
            )
    often = (index for index in range(wanted) if len(starts.nodes.get(index, ())) >= ATTEMPTS)
    pods = [starts.newest[index] for index in often]
    refused = all(pod.exit_code in START_ERROR_CODES for pod in pods)
    if not pods or len(pods) < wanted or not refused:
        return ""
    return (
        f"no worker can start: {pods[0].name} {describe_failed_start(pods[0])}; "
        "correct `command` or the image in spec.template"
    )


def describe_failed_start(pod: PodView) -> str:
    """How a pod has failed to start, to follow its name in a sentence."""
    # Without an exit code, describe_end has the message.
    said = pod.exit_message.strip() if pod.exit_code is not None else ""
    return f"{describe_end(pod)}{f': {said}' if said else ''}"


def _failed_to_start(pod: PodView, observed: Observed) -> bool:
    if pod.stock:
        return pod.phase == "Failed" and (
            pod.exit_code is None or pod.exit_reason in RUNTIME_REASONS
        )
    return not has_spoken(pod, observed) or failed_to_prepare(pod, observed)


def _failed_on(pod: PodView, observed: Observed) -> tuple[str, ...]:
    if pod.ended_before_takeover:
        return pod.failed_starts
    if _failed_to_start(pod, observed):
        node = pod.node
    elif has_own_end(pod) and pod.ended_at < pod.created_at + LASTING_SECONDS:
        node = NO_NODE
    else:
        return ()
    return (*pod.failed_starts, node)[-MAX_FAILED_STARTS:]
