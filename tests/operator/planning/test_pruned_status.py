"""A status that lacks any field, as an older CRD prunes it, stops no plan of a new leader."""

from typing import Any

from elastic_pytorch_operator.api.manifest import copied
from elastic_pytorch_operator.planning.memory import recall
from elastic_pytorch_operator.planning.plan import plan
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.any_jobs import places
from tests.operator.builders import NOW, TIME, Progress, a_job, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation

# What no simulation of a few seconds leads to.
BESIDES = {
    "progress": {"summary": "5/9", "step": 5, "total": 9, "loss": "1", "metrics": {"a": "1"}},
    "stragglers": [
        {"rank": 1, "worker": "w1", "localRank": 0, "slowdown": "1.5", "medianSeconds": "0.7"}
    ],
    "template": {"name": "gpu", "uid": "uid"},
    "lastValidSpec": {"replicas": 3},
    "unlistedWorkers": {"Running": "128-199"},
    "refusals": ["no quota"],
}


def a_status() -> dict[str, Any]:
    simulation = Simulation(a_job(replicas=3))
    simulation.settle(10)
    simulation.kill_pod(simulation.declared[-1].workers[1])
    simulation.settle(10)
    return {**simulation.job.status, **BESIDES}


STATUS = a_status()
AGENTS = [
    an_agent(f"w{n}", rank=n, progress=Progress(step=5, first_step=1), progressed_at=NOW)
    for n in range(3)
]
SEEN = observed([a_pod(n) for n in range(3)], AGENTS, round=a_round(0, 1, 2), last_heard_at=NOW)


def drop(status: dict[str, Any], way: tuple[Any, ...]) -> None:
    """Drops a field of a status, or of an object in it; an item of a list stays."""
    holder: Any = status
    for name in way[:-1]:
        holder = holder[name]
    if isinstance(holder, dict):
        del holder[way[-1]]


def plan_by(status: dict[str, Any]) -> None:
    job = a_job(status=status)
    plan(job, SEEN, recall(job, NOW, TIME))


def test_no_field_that_is_missing_stops_a_plan() -> None:
    assert {"history", "goodput", "rootCause", "operatorState"} <= STATUS.keys()
    for way in places(STATUS):
        status = copied(STATUS)
        drop(status, way)
        plan_by(status)


@given(st.data())
def test_several_fields_that_are_missing_stop_no_plan(data: st.DataObject) -> None:
    status = copied(STATUS)
    for _ in range(data.draw(st.integers(2, 6))):
        drop(status, data.draw(st.sampled_from([*places(status)])))
    plan_by(status)
