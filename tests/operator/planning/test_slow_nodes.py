"""A job on a node that is slow: users learn of it, and the job stays as it is."""

from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import AgentState, NodeView

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

WINDOW_SECONDS = 5.0


@dataclass
class UnevenSimulation(Simulation):
    """A job whose ranks report their work, which takes longer on the slow node."""

    slow_node: str = ""
    told: list[RecordEvent] = field(default_factory=list)

    def live(self) -> None:
        super().live()
        for name, agent in self.agents.items():
            if agent.state is AgentState.RUNNING and name in self.members:
                progress = replace(
                    agent.progress,
                    work_windows=int((self.now - agent.state_since) // WINDOW_SECONDS),
                    work_seconds=(0.9 if self.pods[name].node == self.slow_node else 0.1,),
                    step_seconds=1.0,
                )
                self.agents[name] = replace(agent, progress=progress)

    def reconcile(self) -> Any:
        todo = super().reconcile()
        self.told += [action for action in todo.actions if isinstance(action, RecordEvent)]
        return todo


def test_slow_worker_is_named_and_keeps_its_place() -> None:
    simulation = UnevenSimulation(a_job(), {f"node-{n}": NodeView(f"node-{n}") for n in range(4)}, 1, slow_node="node-1")
    simulation.settle(300)
    assert [each["node"] for each in simulation.status["stragglers"]] == ["node-1"]
    assert [event.reason for event in simulation.told if event.reason.startswith("Straggler")] == ["Straggler"]
    assert (len(simulation.declared), simulation.made) == (1, 3)
