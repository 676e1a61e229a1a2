"""How many processes each worker of a group runs: ranks and WORLD_SIZE need equal numbers.

They differ only if spec.nprocPerNode is a word (auto, cpu, gpu, xpu), whose meaning depends on the
pod's node.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.planning.workers.liveness import Candidate


def processes_each(members: Container[str], candidates: Sequence[Candidate]) -> int:
    """The processes that most ready workers run; 0: not known.

    Of equally frequent numbers, the one of more members counts, then that of the lowest index.
    """
    ready = [c for c in candidates if c.ready and c.processes]
    votes = Counter(c.processes for c in ready)
    inside = Counter(c.processes for c in ready if c.worker in members)
    lowest = {c.processes: c.index for c in sorted(ready, key=lambda c: -c.index)}
    return max(votes, key=lambda n: (votes[n], inside[n], -lowest[n]), default=0)


def differs(candidate: Candidate, processes: int) -> bool:
    return candidate.ready and candidate.processes not in (0, processes)


def explain_difference(
    members: Container[str], candidates: Sequence[Candidate], pods: Mapping[str, PodView]
) -> str:
    processes = processes_each(members, candidates)
    apart = [c for c in candidates if differs(c, processes)]
    if not apart:
        return ""
    each = ", ".join(
        f"{c.worker} on node {pods[c.worker].node} runs {c.processes}" for c in apart[:3]
    )
    more = f" and {len(apart) - 3} more pods run another number" if len(apart) > 3 else ""
    return (
        f"left out for the number of processes: {each}{more}, the others run {processes} each; "
        "create the job with a number in spec.nprocPerNode, "
        "or with a nodeSelector for nodes that are alike"
    )
