"""How long a new leader listens before it calls a worker lost: until all agents have had the time to find it, and to be heard.

Thousands of agents that come at once are heard one after the other: as long as they keep coming, the operator is not yet done hearing.
"""

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.workers.lost_leader import lost_with_leader

GRACE_SECONDS = 5.0  # agents try again every 2 s at most, so all that live have come by then
UNHEARD_GROUP_SECONDS = 10.0  # unless each of them is still at a try that nobody refuses, which takes 5 s: then none has come
MAX_GRACE_SECONDS = 30.0
ARRIVAL_SECONDS = 1.0  # without another agent that had a round before: they have all come
LOST_NODE_GRACE_SECONDS = 1.0  # agents open another connection every quarter of a second
LOST_NODE_ARRIVAL_SECONDS = 0.5


def takeover_grace_until(observed: Observed) -> float | None:
    """Until when to decide nothing about a job yet, monotonic seconds; None: it is time."""
    running = [pod for pod in observed.pods if pod.started and not pod.ended and not pod.deleting]
    unheard = [pod for pod in running if pod.name not in observed.agents]
    if not unheard:
        return None
    since = observed.listening_since
    group = [pod.name for pod in running if pod.name in observed.heard_before]
    none_heard = bool(group) and not any(name in observed.agents for name in group)
    listening, arrival = UNHEARD_GROUP_SECONDS if none_heard else GRACE_SECONDS, ARRIVAL_SECONDS
    if lost_with_leader(observed) >= {pod.name for pod in unheard}:
        listening, arrival = LOST_NODE_GRACE_SECONDS, LOST_NODE_ARRIVAL_SECONDS
    until = max(since + listening, min(observed.arrived_at + arrival, since + MAX_GRACE_SECONDS))
    return until if observed.now < until else None
