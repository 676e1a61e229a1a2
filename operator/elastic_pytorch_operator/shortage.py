"""Why workers are missing, in words that a person can act on."""

from collections import defaultdict
from collections.abc import Container, Sequence

from elastic_pytorch_operator.observed import PodView


def explain_shortage(pods: Sequence[PodView], speaking: Container[str], refusal: str = "") -> str:
    """One clause a cause, the most frequent first.

    Args:
        pods: the job's.
        speaking: names of the pods that are known to be up.
        refusal: what came of the writes that the API server does not take.
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
    clauses = []
    for reason, count in sorted(groups.items(), key=lambda item: (-item[1], item[0])):
        clauses.append(f"{count} {'pod' if count == 1 else 'pods'}: {reason}")
    if refusal:
        clauses.append(refusal)
    return "; ".join(clauses)
