"""How long a new leader waits before it considers a worker lost: until every agent has had time to connect.

Thousands of agents that connect at once are served one after another. So the grace period lasts as long as further agents arrive. A group
of which only a part has been heard trains all the same, and a round without the others would stop it.
"""

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.workers.lost_leader import lost_with_leader
from elastic_pytorch_operator.planning.workers.out_of_reach import runs_as_far_as_heard

GRACE_SECONDS = 5.0  # agents retry every 2 s or sooner, so all live ones have connected by then
UNHEARD_GROUP_SECONDS = 10.0  # if no agent of a group has connected: an attempt to reach a dead leader takes 5 s to time out
MAX_ARRIVALS_SECONDS = 300.0  # an agent arrives once; 10,000 of them take one to two minutes
MAX_CROWD_GRACE_SECONDS = 30.0  # a crowd may be one of strangers
ARRIVAL_SECONDS = 1.0  # without a further agent that already had a round, or one that waits to be let in: all have arrived
BUSY_ARRIVAL_SECONDS = 5.0  # the same where some were turned away, or the event loop was late: after that they have come again
RUNNING_GROUP_SECONDS = 10.0  # the same if the part of a group that has been heard runs
LOST_NODE_GRACE_SECONDS = 1.0  # agents open another connection every quarter of a second
LOST_NODE_ARRIVAL_SECONDS = 0.5


def takeover_grace_until(observed: Observed) -> float | None:
    """Returns until when nothing is decided about a job, monotonic seconds; None: the grace period is over."""
    running = [pod for pod in observed.pods if pod.started and not pod.ended and not pod.deleting]
    unheard = [pod for pod in running if pod.name not in observed.agents]
    if not unheard:
        return None
    since = observed.listening_since
    group = [pod.name for pod in running if pod.name in observed.heard_before]
    none_heard = bool(group) and not any(name in observed.agents for name in group)
    listening = UNHEARD_GROUP_SECONDS if none_heard else GRACE_SECONDS
    arrival = BUSY_ARRIVAL_SECONDS if observed.lets_in_since > since else ARRIVAL_SECONDS
    if runs_as_far_as_heard(observed):
        arrival = RUNNING_GROUP_SECONDS
    if lost_with_leader(observed) >= {pod.name for pod in unheard}:
        listening, arrival = LOST_NODE_GRACE_SECONDS, LOST_NODE_ARRIVAL_SECONDS
    until = max(
        since + listening,
        min(observed.arrived_at + arrival, since + MAX_ARRIVALS_SECONDS),
        min(observed.lets_in_since + arrival, since + MAX_CROWD_GRACE_SECONDS),
    )
    return until if observed.now < until else None
