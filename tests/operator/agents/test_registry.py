import math
from functools import partial
from typing import Any

import pytest
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.load import SECONDS_PER_AGENT
from elastic_pytorch_operator.agents.registry import AgentRegistry

from tests.operator.builders import a_round
from tests.operator.counted_lines import count_lines

JOB = "uid-lm"


def beat(
    registry: AgentRegistry,
    worker: str,
    state: str = "running",
    round_: int = 1,
    at: float = 1.0,
    job: str = JOB,
    **fields: Any,
) -> float | None:
    """A heartbeat; returns in how many seconds the job is to be planned."""
    report = {"incarnation": "a", "state": state, "round": round_, **fields}
    return registry.note_heartbeat(job, parse_heartbeat(worker, report, at))


@pytest.fixture
def registry() -> AgentRegistry:
    """A round of three members, which all have reported."""
    made = AgentRegistry()
    made.declare(JOB, a_round(0, 1, 2))
    for worker in ("w0", "w1", "w2"):
        beat(made, worker)
    return made


def test_pod_arrives_once_whatever_its_agent_says_and_for_its_own_job(
    registry: AgentRegistry,
) -> None:
    """A takeover waits for arrivals, which no pod may hold up by ever new incarnations."""
    assert registry.job(JOB).arrived_at == 1.0
    beat(registry, "w0", at=2.0, incarnation="b")
    assert registry.job(JOB).arrived_at == 1.0
    beat(registry, "w3", at=3.0)
    beat(registry, "other-w0", at=4.0, job="uid-other")
    assert registry.job(JOB).arrived_at == 3.0


def test_first_agent_of_any_job_after_none_was_heard_is_remembered(registry: AgentRegistry) -> None:
    assert registry.heard_again_at == -math.inf
    beat(registry, "w0", at=3.9)
    assert registry.heard_again_at == -math.inf
    beat(registry, "other-w0", at=7.0, job="uid-other")
    beat(registry, "w0", at=8.0)
    assert registry.heard_again_at == 7.0


def test_first_step_of_a_round_is_planned_for_and_no_other(registry: AgentRegistry) -> None:
    assert beat(registry, "w0", progress={"step": 1}) is not None
    assert beat(registry, "w0", progress={"step": 2, "firstStep": 1}) is not None
    for step in (2, 3, 4):
        assert (
            beat(registry, "w0", progress={"step": step, "firstStep": 1, "loss": 1 / step}) is None
        )


def test_places_are_planned_for_once(registry: AgentRegistry) -> None:
    told = {"byLocalRank": [{"kind": "lock"}]}
    assert beat(registry, "w0", places=told | {"ageSeconds": 0.5}, at=9.0) is not None
    agent = registry.agents(JOB, {"w0"})["w0"]
    assert ([place.kind for place in agent.places], agent.placed_at) == (["lock"], 8.5)
    assert beat(registry, "w0", places=told | {"ageSeconds": 1.5}, at=10.0) is None


def test_moments_of_a_round_are_those_of_their_first_report(registry: AgentRegistry) -> None:
    def moments() -> tuple[float | None, float | None]:
        agent = registry.agents(JOB, {"w0", "w1", "w2"})["w0"]
        return agent.started_at, agent.formed_at

    assert moments() == (None, None)
    beat(registry, "w0", at=5.0, progress={"startedAgeSeconds": 1.0})
    beat(registry, "w0", at=6.5, progress={"startedAgeSeconds": 2.4, "formedAgeSeconds": 0.5})
    assert moments() == (4.0, 6.0)
    beat(registry, "w0", at=9.0, round_=2, progress={"startedAgeSeconds": 0.5})
    assert moments() == (8.5, None)


def test_wait_for_the_last_checkpoint_is_planned_for_and_a_training_that_goes_on_has_its_time_again(
    registry: AgentRegistry,
) -> None:
    def moments() -> tuple[float | None, float]:
        agent = registry.agents(JOB, {"w0"})["w0"]
        return agent.saving_since, agent.progressed_at

    beat(registry, "w0", at=5.0, progress={"step": 7})
    assert beat(registry, "w0", at=9.0, progress={"step": 7, "savingSeconds": 1.0}) is not None
    assert beat(registry, "w0", at=11.5, progress={"step": 7, "savingSeconds": 3.2}) is None
    assert moments() == (8.0, 5.0)
    assert beat(registry, "w0", at=20.0, progress={"step": 7}) is not None
    assert moments() == (None, 20.0)
    beat(registry, "w0", at=21.0, state="succeeded", progress={"step": 7, "savingSeconds": 3.2})
    assert moments()[0] is None


def test_last_checkpoint_of_a_pod_that_leaves_is_planned_for(registry: AgentRegistry) -> None:
    """Nothing is heard of it later, and what a suspended job has lost is reported by it."""
    beat(registry, "w0", progress={"step": 7, "checkpointStep": 1})
    assert beat(registry, "w0", progress={"step": 7, "checkpointStep": 5}) is None
    beat(registry, "w0", "leaving", progress={"step": 7, "checkpointStep": 5})
    assert beat(registry, "w0", "leaving", progress={"step": 7, "checkpointStep": 5}) is None
    assert beat(registry, "w0", "leaving", progress={"step": 7, "checkpointStep": 7}) is not None


def test_set_up_is_timed_from_its_first_report_to_the_next_state() -> None:
    registry = AgentRegistry()

    def moments() -> tuple[float | None, float | None]:
        agent = registry.agents(JOB, {"w0"})["w0"]
        return agent.set_up_since, agent.set_up_until

    beat(registry, "w0", "ready", 0, at=1.0)
    assert moments() == (None, None)
    for at in (2.0, 5.0):
        beat(registry, "w0", "preparing", 0, at=at)
        assert moments() == (2.0, None)
    for state, at in (("ready", 9.0), ("running", 10.0), ("failed", 11.0)):
        beat(registry, "w0", state, 0, at=at)
        assert moments() == (2.0, 9.0)
    beat(registry, "w0", "preparing", 0, at=12.0)
    assert moments() == (12.0, None)
    beat(registry, "w0", "ready", 0, at=13.0, incarnation="b")
    assert moments() == (None, None), "another process has not been seen to begin"


def test_agent_that_is_heard_again_after_a_silence_is_planned_for(registry: AgentRegistry) -> None:
    assert beat(registry, "w0", at=3.5) is None
    assert beat(registry, "w1", at=4.5) is not None
    assert beat(registry, "w1", at=5.5) is None


def test_interval_follows_the_agents() -> None:
    registry = AgentRegistry()
    for number in range(3000):
        beat(registry, f"w{number % 10}", job=f"uid-{number // 10}")
    assert registry.heartbeat_seconds(10.0) == 3


def test_operator_that_begins_to_lead_expects_the_agents_of_all_running_pods() -> None:
    registry = AgentRegistry(lambda: 5000)
    assert registry.heartbeat_seconds(10.0) == 5
    beat(registry, "w0", at=20.0)
    assert registry.heartbeat_seconds(79.0) == 5
    beat(registry, "w0", at=80.0)
    assert registry.heartbeat_seconds(81.0) == 1, "all that speak have been heard by now"


def test_first_failure_is_planned_at_once_and_others_wait_for_each_other() -> None:
    registry = AgentRegistry()
    registry.declare(JOB, a_round(*range(1000)))
    for index in range(1000):
        beat(registry, f"w{index}")
    delays = [beat(registry, f"w{index}", "failed") for index in range(1000)]
    assert delays == [0.0, *[1000 * SECONDS_PER_AGENT] * 999]


def test_heartbeats_of_the_others_count_once_a_member_has_failed(registry: AgentRegistry) -> None:
    beat(registry, "w1", "failed")
    assert beat(registry, "w0") is not None
    registry.declare(JOB, a_round(0, 1, 2, number=2))
    assert beat(registry, "w0") is None, "its failure is that of an older round"
    beat(registry, "w1", "failed", 2)
    assert beat(registry, "w0") is not None
    beat(registry, "w1", "ready", 2)
    assert beat(registry, "w0") is None, "it no longer reports a failure"


def test_failure_of_a_worker_that_is_gone_is_forgotten(registry: AgentRegistry) -> None:
    beat(registry, "w1", "failed")
    registry.agents(JOB, {"w0", "w2"})
    assert beat(registry, "w0") is None


def test_agent_is_disconnected_once_no_stream_of_its_is_open(registry: AgentRegistry) -> None:
    registry.open_stream(JOB, "w0")
    registry.open_stream(JOB, "w0")
    registry.close_stream(JOB, "w0", 5.0, dropped=True)
    assert registry.agents(JOB, {"w0", "w1"})["w0"].disconnected_since is None
    registry.close_stream(JOB, "w0", 6.0, dropped=True)
    agents = registry.agents(JOB, {"w0", "w1"})
    assert (agents["w0"].disconnected_since, agents["w1"].disconnected_since) == (6.0, None)
    registry.open_stream(JOB, "w0")
    assert registry.agents(JOB, {"w0", "w1"})["w0"].disconnected_since is None


def test_agent_whose_stream_ended_in_order_is_not_disconnected(registry: AgentRegistry) -> None:
    registry.open_stream(JOB, "w0")
    registry.close_stream(JOB, "w0", 5.0, dropped=True)
    registry.open_stream(JOB, "w0")
    registry.close_stream(JOB, "w0", 6.0, dropped=False)
    assert registry.agents(JOB, {"w0", "w1"})["w0"].disconnected_since is None


def test_nothing_is_kept_of_a_pod_whose_stream_ends_after_it_is_gone(
    registry: AgentRegistry,
) -> None:
    beat(registry, "w3")
    registry.open_stream(JOB, "w3")
    registry.agents(JOB, {"w0", "w1", "w2"})
    registry.close_stream(JOB, "w3", 5.0, dropped=True)
    assert "w3" not in repr(registry.job(JOB))


def test_heartbeat_costs_the_same_in_a_large_job() -> None:
    costs = []
    for workers in (10, 1000):
        registry = AgentRegistry()
        registry.declare(JOB, a_round(*range(workers)))
        for index in range(workers):
            beat(registry, f"w{index}", "failed" if index % 2 else "running")
        costs.append(count_lines(partial(beat, registry, "w0")))
    assert costs[0] == costs[1]
