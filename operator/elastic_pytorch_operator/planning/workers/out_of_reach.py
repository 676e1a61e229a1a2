"""Until when agents that a new leader has not heard are probably alive, and only cannot reach it yet.

Each node learns the leader's address by itself. After an outage of the API server, kube-proxy asks again at growing intervals: client-go's
reflector waits up to 30 s, and by chance twice as long. Meanwhile the agents of that node look for the leader in vain, and their workers
train. What tells them from lost ones is the part of the group that is heard: a synchronous training makes no step without all its workers.
"""

from elastic_pytorch_operator.model.observed import AgentState, Observed

ROUTE_SECONDS = 75.0  # until every node has the leader's address: a minute, and what an agent takes to try again
STALLED_SECONDS = 10.0  # without a step of the part that is heard
RUNNING_GROUP_SECONDS = 10.0  # without a further agent, if the part that is heard runs and reports no steps
MAX_ARRIVALS_SECONDS = 300.0  # an agent arrives once; 10,000 of them take one to two minutes


def out_of_reach_until(observed: Observed) -> float:
    """A moment, monotonic seconds; when the leader began to listen if nothing says that the missing agents are alive."""
    since, missing = observed.listening_since, observed.heard_before - observed.agents.keys()
    members = [agent for agent in observed.agents.values() if agent.round > 0]
    if not members:
        return since + ROUTE_SECONDS if missing else since
    if any(agent.state is not AgentState.RUNNING for agent in members):
        return since  # a missing worker may be the cause
    until = min(observed.arrived_at + RUNNING_GROUP_SECONDS, since + MAX_ARRIVALS_SECONDS)
    stepped_at = [agent.progressed_at for agent in members if agent.progress.step is not None]
    if missing and stepped_at:
        until = max(until, min(max(stepped_at) + STALLED_SECONDS, since + ROUTE_SECONDS))
    return until
