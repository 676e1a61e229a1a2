"""What happens to a simulated job: faults that a test injects, and what its user does."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.announced_ends import Taint, announced_end
from elastic_pytorch_operator.model.observed import AgentState, NodeView, Progress
from elastic_pytorch_operator.planning.memory import recall
from elastic_pytorch_operator.reconcile.observe import recover_round

from tests.operator.builders import TIME, a_failure, a_job
from tests.operator.simulated_job import SimulatedJob


class Simulation(SimulatedJob):
    """A simulated job, and what can happen to it."""

    def fail_worker(
        self, name: str, message: str = "gloo: Connection closed by peer", **fields: Any
    ) -> None:
        agent = self.agents.get(name)
        if agent is not None and agent.state is AgentState.RUNNING:
            failure = a_failure(message, failed_at=self.now, **fields)
            self.agents[name] = replace(
                agent,
                state=AgentState.FAILED,
                state_since=self.now,
                heard_at=self.now,
                failure=failure,
            )

    def kill_pod(self, name: str) -> None:
        self.end_pod(name, exit_code=137)

    def make_progress(self, step: int, checkpoint_step: int | None = None) -> None:
        progress = Progress(step=step, first_step=1, checkpoint_step=checkpoint_step)
        for name, agent in self.agents.items():
            self.agents[name] = replace(agent, progress=progress, progressed_at=self.now)

    def succeed(self) -> None:
        for name, agent in self.agents.items():
            if agent.state is AgentState.RUNNING:
                self.agents[name] = replace(agent, state=AgentState.SUCCEEDED, state_since=self.now)

    def restart_operator(self) -> None:
        """Forgets all that an operator keeps in memory."""
        for pod in self.pods.values():
            if pod.ended:
                self.pods[pod.name] = replace(pod, ended_before_takeover=True, ended_at=self.now)
                self.agents.pop(pod.name, None)
        self.memory, self.accounted = recall(self.job, self.now, TIME), None
        self.listening_since = self.now
        self.round = recover_round(tuple(self.pods.values()), self.agents, self.now) or self.round

    def take_over(self, connects_at: Mapping[str, float]) -> None:
        """Another operator begins to lead.

        It has heard no agent yet; those that are not named connect at once.
        """
        self.restart_operator()
        self.round = None
        self.connects_at = dict.fromkeys(self.agents, self.now) | dict(connects_at)

    def announce(
        self,
        node: str,
        *taints: Taint,
        labels: Mapping[str, str] | None = None,
        condition: str = "",
    ) -> None:
        """Puts taints, labels and a condition on a node; those that it had are gone."""
        excluding = tuple(taint for taint in taints if taint.effect != "PreferNoSchedule")
        end = announced_end(taints, labels or {}, {condition: "True"})
        self.nodes[node] = NodeView(node, labels=labels or {}, taints=excluding, end=end)

    def scale(self, wanted: int) -> None:
        self.job = replace(self.job, wanted=wanted, generation=self.job.generation + 1)


def running(**fields: Any) -> Simulation:
    """A job whose workers all train."""
    simulation = Simulation(a_job(**fields))
    simulation.settle(10)
    assert simulation.round is not None
    assert simulation.round.size == simulation.job.wanted
    return simulation
