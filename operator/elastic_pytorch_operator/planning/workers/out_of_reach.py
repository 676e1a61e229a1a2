"""Until when agents that a new leader has not heard are probably alive, and only cannot reach it yet.

Each node learns the leader's address by itself. After an outage of the API server, kube-proxy asks again at growing intervals: client-go's
reflector waits up to 30 s, and by chance twice as long. A request that it made during the outage may hang before that. Meanwhile the agents
of that node look for the leader in vain, and their workers train. What tells them from lost ones is the part of the group that is heard:
a synchronous training makes no step without all its workers, and a lost worker soon fails its peers.
"""

import math

from elastic_pytorch_operator.model.observed import AgentState, Observed

ROUTE_SECONDS = 120.0  # until every node has the leader's address: a minute, and a margin for what hangs before and after it
STALLED_SECONDS = 10.0  # without a step of the part that is heard


def runs_as_far_as_heard(observed: Observed) -> bool:
    """Whether all agents of a group that have been heard run it. The loss of a worker would soon fail its peers."""
    members = [agent for agent in observed.agents.values() if agent.round > 0]
    return bool(members) and all(agent.state is AgentState.RUNNING for agent in members)


def out_of_reach_until(observed: Observed) -> float:
    """A moment, monotonic seconds; when the leader began to listen if nothing says that the missing agents are alive."""
    since, missing = observed.listening_since, observed.heard_before - observed.agents.keys()
    members = [agent for agent in observed.agents.values() if agent.round > 0]
    if not missing:
        return since
    if not members:
        return since + ROUTE_SECONDS
    round_ = observed.round
    whole = round_ is not None and round_.size == len(round_.members)  # then the missing ones are in no group
    if whole or not runs_as_far_as_heard(observed):
        return since
    stepped_at = [agent.progressed_at for agent in members if agent.progress.step is not None]
    return min(max(stepped_at, default=math.inf) + STALLED_SECONDS, since + ROUTE_SECONDS)
