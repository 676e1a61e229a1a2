"""For how long those that are ready wait for others that are about to be."""

from collections.abc import Sequence

from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.planning.workers.silence import FIRST_REPORT


def settled_at(
    newcomers: Sequence[Candidate], candidates: Sequence[Candidate], room: int, settle_seconds: float, now: float
) -> float:
    """Returns when the newcomers need not wait for more, monotonic seconds: at once if there is no room for more.

    Args:
        newcomers: workers that are ready; at least one, unless there is no room.
        candidates: all workers of the job.
        room: how many newcomers there may be.
        settle_seconds: how long to wait for another one after the last that came.
        now: monotonic seconds.
    """
    if len(newcomers) >= room:
        return now
    since = [candidate.ready_since for candidate in newcomers]
    arriving = any(c.liveness is Liveness.STARTING and c.container_runs for c in candidates)
    settled = max(since) + settle_seconds
    return max(settled, min(since) + FIRST_REPORT.at_least_seconds) if arriving else settled
