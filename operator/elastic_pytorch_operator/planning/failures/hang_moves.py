"""Workers that a group has hung for: their pods are replaced, once, and new pods keep away from their nodes for half an hour.

A node whose file system or device has gone silent makes a rank hang, and so does a script. Which one it is shows on another node: if the
group hangs again before it has come to a further step, it is the script, and no pod moves any more. A new leader does not know of a move
before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.failures.device_faults import AVOID_SECONDS
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall
from elastic_pytorch_operator.planning.workers.suspect_nodes import others_have_room
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class HangMoves:
    """What is remembered.

    Attributes:
        nodes: where a worker was when its group hung for it, and since when, in monotonic seconds.
        workers: those workers, while their pods are there.
        step: the furthest step that a rank had come to at the last move; None: no worker has moved.
    """

    nodes: Mapping[str, float] = field(default_factory=dict)
    workers: frozenset[str] = frozenset()
    step: int | None = None


NO_HANG_MOVES = HangMoves()


def move_from_hang(known: HangMoves, job: Job, observed: Observed, stall: Stall | None) -> HangMoves:
    """Returns what is to be remembered now.

    Args:
        known: what was remembered.
        job: whose workers they are.
        observed: the job's pods, nodes and agents.
        stall: for which the group is restarted now; None: for none.
    """
    nodes = {node: since for node, since in known.nodes.items() if observed.now <= since + AVOID_SECONDS}
    known = replace(known, nodes=nodes, workers=known.workers & observed.pods_by_name.keys())
    if stall is None or not stall.movable or stall.cause.worker in known.workers:
        return known
    pod = observed.pods_by_name.get(stall.cause.worker)
    steps = [agent.progress.step for agent in observed.agents.values() if agent.progress.step is not None]
    again = known.step is not None and max(steps, default=0) <= known.step
    if (
        pod is None
        or not pod.node
        or again
        or not others_have_room({*nodes, pod.node}, observed.nodes, observed.pods, job.template_of(pod.index))
    ):
        return known
    return HangMoves({**nodes, pod.node: observed.now}, known.workers | {pod.name}, max(steps, default=0))


def displaced_by_hangs(moves: HangMoves, observed: Observed) -> frozenset[str]:
    """The workers that serve no more. A member is not among them: its group is restarted without it first."""
    return moves.workers - observed.ranks.keys()
