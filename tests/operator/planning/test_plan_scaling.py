"""A whole job that is autoscaled, from its heartbeats to its pods: `planning.scaling` decides, the plan carries it out."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import AgentState, Observed, Progress
from elastic_pytorch_operator.planning.plan import Plan

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

SAMPLES = 10


@dataclass
class Training(Simulation):
    """A job whose script reports its steps.

    Attributes:
        helpful: workers beyond that add nothing.
        step: of the group.
        stepped_round: the round that the steps are of.
        events: all that were recorded.
    """

    helpful: int = 3
    step: float = 0.0
    stepped_round: int = 0
    events: tuple[RecordEvent, ...] = ()

    def observe(self) -> Observed:
        time = write_time(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now))
        return replace(super().observe(), time=time)

    def reconcile(self) -> Plan:
        if self.round is not None and self.round.size:
            if self.round.number != self.stepped_round:
                self.step, self.stepped_round = 0.0, self.round.number
            self.step += 2 * min(self.round.size, self.helpful) * self.step_seconds
            for name in self.round.workers:
                agent = self.agents.get(name)
                if agent is not None and agent.state is AgentState.RUNNING and agent.round == self.round.number:
                    progress = Progress(step=int(self.step), first_step=0, samples_per_step=SAMPLES)
                    self.agents[name] = replace(agent, progress=progress, progressed_at=self.now)
        todo = super().reconcile()
        self.events += tuple(action for action in todo.actions if isinstance(action, RecordEvent))
        return todo

    def told(self, reason: str) -> list[str]:
        return [event.note for event in self.events if event.reason == reason]


def training(**fields: object) -> Training:
    job = a_job(**{"replicas": 4, "minimum": 1, "maximum": 4, "resizePolicy": {"autoscale": {}}, **fields})
    return Training(job, step_seconds=1.0)


def settled() -> Training:
    """A job that has given its fourth worker back, and has tried whether the third one helps."""
    simulation = training()
    while not any(note.startswith("Keeps 3") for note in simulation.told(names.AUTOSCALED)):
        simulation.settle(10)
        assert simulation.now < 10_000
    simulation.settle(10)
    return simulation


def test_worker_that_does_not_help_is_given_back_and_its_pod_goes() -> None:
    simulation = settled()
    assert [round_.size for round_ in simulation.declared][-4:] == [4, 3, 2, 3]
    assert len([pod for pod in simulation.pods.values() if not pod.ended]) == 3
    assert simulation.told(names.AUTOSCALED)[1].startswith("Gives back 1 of 4 workers: the 4th worker added 0 %")
    status = simulation.job.status
    assert status["scaling"]["keptReplicas"] == 3
    assert status["scaling"]["message"].endswith("autoscale keeps 3 of 4 workers")
    [resizing] = [condition for condition in status["conditions"] if condition["type"] == names.RESIZING]
    assert resizing["reason"] == names.AT_WANTED_SIZE
    assert "4 were requested: " in resizing["message"]


def test_next_leader_makes_no_pod_for_a_worker_that_was_given_back() -> None:
    simulation = settled()
    made = simulation.made
    simulation.take_over(dict.fromkeys(simulation.agents, simulation.now + 2))
    simulation.settle(20)
    assert simulation.made == made
    round_ = simulation.observe().round
    assert round_ is not None
    assert round_.size == 3


def test_lost_worker_is_replaced_as_without_autoscale() -> None:
    simulation = settled()
    simulation.kill_pod(simulation.members[0])
    simulation.settle(20)
    assert [round_.size for round_ in simulation.declared][-3:] == [3, 2, 3]


def test_scale_is_the_upper_bound() -> None:
    simulation = settled()
    simulation.scale(2)
    simulation.settle(20)
    assert simulation.round is not None
    assert simulation.round.size == 2


def test_last_worker_is_judged_without_autoscale_too() -> None:
    simulation = training(resizePolicy={})
    simulation.scale(3)
    simulation.settle(150)
    simulation.scale(4)
    simulation.settle(150)
    assert [round_.size for round_ in simulation.declared] == [3, 4]
    [note] = simulation.told(names.SCALING_MEASURED)
    assert note.startswith("The 4th worker added 0 % (")
    assert simulation.told(names.AUTOSCALED) == []
