"""What a plan costs grows with the workers of a job, and no faster.

Counted are lines and comparisons of names, which are the same on any machine.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import PatchStatus
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Certainty
from elastic_pytorch_operator.model.failure import DEVICE_FAULT
from elastic_pytorch_operator.model.observed import AgentState, Nodes, NodeView, Observed
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.nodes.placement import nodes_for
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.queue import Queue

from tests.operator.builders import (
    NOW,
    Progress,
    a_dead_pod,
    a_failure,
    a_job,
    a_pod,
    a_round,
    a_workload,
    an_agent,
    observed,
)
from tests.operator.counted_lines import count_lines

FEW, MANY = 100, 400
# Of the cost, from few workers to four times as many; a scan inside a scan makes it 16.
MAX_GROWTH = 5.0
NEWCOMERS = 10
SURE = AnnouncedEnd("taint spot", Certainty.SURE)

Scenario = Callable[[Job, Observed, int], tuple[Job, Observed]]


class Name(str):
    """A name that counts its comparisons, even those inside of `in`."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True

    def __hash__(self) -> int:
        return str.__hash__(self)


def named(seen: Observed) -> Observed:
    """The same with names that count, a new one at each place: `in` compares no identical ones."""
    round_ = seen.round and replace(
        seen.round, members=tuple(replace(m, worker=Name(m.worker)) for m in seen.round.members)
    )
    return replace(
        seen,
        pods=tuple(replace(pod, name=Name(pod.name), node=Name(pod.node)) for pod in seen.pods),
        agents={
            Name(name): replace(agent, worker=Name(name)) for name, agent in seen.agents.items()
        },
        nodes=Nodes(
            {Name(name): replace(node, name=Name(name)) for name, node in seen.nodes.items()}
        ),
        round=round_,
    )


def a_running_job(workers: int, *, newcomers: int = 0, **spec: Any) -> tuple[Job, Observed, Memory]:
    """A job whose workers train, with the status that a plan has written."""
    there = workers + newcomers
    agents = [
        an_agent(
            f"w{i}",
            rank=i,
            world_size=workers,
            progress=Progress(step=5, first_step=1),
            progressed_at=NOW,
        )
        for i in range(workers)
    ]
    seen = observed(
        [a_pod(i, node=f"node-{i // 8}", rendezvous=1) for i in range(there)],
        [*agents, *(an_agent(f"w{i}", "ready", 0) for i in range(workers, there))],
        round=a_round(*range(workers)),
        nodes={f"node-{n}": NodeView(f"node-{n}") for n in range(there // 8 + 1)},
        last_heard_at=NOW,
    )
    sizes = {"replicas": workers, "minimum": 1, "maximum": workers + NEWCOMERS}
    todo = plan(a_job(**sizes, **spec), seen, Memory())
    status = next(dict(action.status) for action in todo.actions if isinstance(action, PatchStatus))
    return a_job(**sizes, **spec, status=status), seen, todo.memory


def resized(job: Job, workers: int) -> Job:
    return replace(job, wanted=workers, requested=workers)


def steady(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    return job, seen


def worker_lost(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    return job, replace(seen, pods=tuple(pod for pod in seen.pods if pod.index != workers // 2))


def half_lost(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    dead = {
        pod.index: a_dead_pod(pod.index, node=pod.node, rendezvous=1)
        for pod in seen.pods[: workers // 2]
    }
    return job, replace(seen, pods=tuple(dead.get(pod.index, pod) for pod in seen.pods))


def nodes_lost(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """Of a quarter of the nodes the kubelets no longer report, and their pods are being deleted."""
    lost = {name for number, name in enumerate(seen.nodes) if number % 4 == 0}
    return job, replace(
        seen,
        pods=tuple(replace(pod, deleting=pod.node in lost) for pod in seen.pods),
        nodes=Nodes(
            {name: replace(node, ready=name not in lost) for name, node in seen.nodes.items()}
        ),
        agents={
            name: agent
            for name, agent in seen.agents.items()
            if seen.pods_by_name[name].node not in lost
        },
    )


def worker_failed(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    name = f"w{workers // 2}"
    failed = replace(
        seen.agents[name],
        state=AgentState.FAILED,
        state_since=NOW - 1,
        failure=a_failure(failed_at=NOW - 1),
    )
    return job, replace(seen, agents={**seen.agents, name: failed})


def devices_failed(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    failed = {"state": AgentState.FAILED, "failure": a_failure(exception=DEVICE_FAULT)}
    agents = {name: replace(agent, **failed) for name, agent in seen.agents.items()}  # type: ignore[arg-type]
    return job, replace(seen, agents=agents)


def nodes_end(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """Each worker is on a node of its own."""
    nodes = [NodeView(Name(f"own-{number}"), end=SURE) for number in range(workers)]
    pods = tuple(replace(seen.pods[n], node=node.name) for n, node in enumerate(nodes))
    return job, replace(seen, pods=pods, nodes=Nodes({node.name: node for node in nodes}))


def all_succeeded(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    return job, replace(
        seen, agents={n: replace(a, state=AgentState.SUCCEEDED) for n, a in seen.agents.items()}
    )


def larger(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    return resized(job, workers + NEWCOMERS), seen


def smaller(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    return resized(job, workers // 2), seen


def first_round(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    agents = {
        name: replace(agent, state=AgentState.READY, round=0) for name, agent in seen.agents.items()
    }
    return replace(job, status={}), replace(seen, round=None, agents=agents)


def no_pods(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    return replace(job, status={}), replace(seen, round=None, pods=(), agents={})


def queued(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """Each worker beyond the first two runs by a Workload of its own."""
    workloads = tuple(map(a_workload, range(workers - 1)))
    pods = tuple(replace(pod, workload=workloads[max(0, pod.index - 1)].name) for pod in seen.pods)
    return replace(job, queue=Queue("team"), minimum=2), replace(
        seen, pods=pods, workloads=workloads
    )


def half_evicted(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """Kueue wants every second extra back."""
    job, seen = queued(job, seen, workers)
    return job, replace(
        seen,
        workloads=tuple(
            a_workload(n, "evicted" if n % 2 else "admitted") for n in range(workers - 1)
        ),
    )


def nothing_fits(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """Pods wait for a node while each avoids one that is no longer suspected."""
    waiting = {"node": "", "phase": "Pending", "started": False, "address": ""}
    avoiding = frozenset(list(seen.nodes)[:1])
    pods = tuple(replace(pod, **waiting, unschedulable=True, avoids=avoiding) for pod in seen.pods)  # type: ignore[arg-type]
    return replace(job, status={}), replace(seen, round=None, pods=pods, agents={})


def waits_in_vain(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """All pods avoid all nodes, which will end."""
    job, seen = nothing_fits(*nodes_end(job, seen, workers), workers)
    avoids = frozenset(seen.nodes)
    return job, replace(seen, pods=tuple(replace(pod, avoids=avoids) for pod in seen.pods))


def starts_failed(job: Job, seen: Observed, workers: int) -> tuple[Job, Observed]:
    """Two pods in a row have failed to start on a node of their own."""
    nodes = [Name(f"own-{number}") for number in range(workers)]
    rejected = {"phase": "Failed", "started": False, "exit_reason": "OutOfcpu", "ended_at": NOW}
    pods = tuple(
        replace(pod, **rejected, node=node, failed_starts=(node,))  # type: ignore[arg-type]
        for pod, node in zip(seen.pods, nodes, strict=True)
    )
    return replace(job, status={}), replace(seen, round=None, pods=pods, agents={})


def growth(scenario: Scenario, *, newcomers: int = 0, forget: bool = False, **spec: Any) -> float:
    costs = []
    for workers in (FEW, MANY):
        job, seen, memory = a_running_job(workers, newcomers=newcomers, **spec)
        job, seen = scenario(job, named(seen), workers)
        remembered = Memory() if forget else memory
        costs.append(count_lines(partial(plan, job, seen, remembered)))
    return costs[1] / costs[0]


@pytest.mark.parametrize(
    "scenario",
    [
        *(steady, worker_lost, half_lost, nodes_lost, worker_failed, devices_failed, nodes_end),
        *(all_succeeded, larger, smaller),
    ],
    ids=lambda s: s.__name__,
)
def test_group_that_trains(scenario: Scenario) -> None:
    assert growth(scenario) <= MAX_GROWTH


def test_nodes_of_other_jobs_cost_nothing() -> None:
    costs = []
    for others in (10, 1000):
        job, seen, memory = a_running_job(FEW)
        seen = replace(
            seen,
            nodes=Nodes(
                {**seen.nodes, **{f"other-{n}": NodeView(f"other-{n}") for n in range(others)}}
            ),
        )
        plan(job, seen, memory)
        costs.append(count_lines(partial(plan, job, seen, memory)))
    assert costs[0] == costs[1], "the nodes are counted once, and not with each plan"


@pytest.mark.parametrize("scenario", [queued, half_evicted], ids=lambda s: s.__name__)
def test_group_in_a_queue(scenario: Scenario) -> None:
    assert growth(scenario) <= MAX_GROWTH


def test_values_of_an_affinity_are_not_searched_for_each_node() -> None:
    costs = []
    for many in (10, 1000):
        terms = [
            {
                "matchExpressions": [
                    {
                        "key": "zone",
                        "operator": "In",
                        "values": [Name(f"zone-{n}") for n in range(many)],
                    }
                ]
            }
        ]
        required = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
        nodes = [NodeView(f"node-{n}", labels={"zone": "elsewhere"}) for n in range(200)]
        costs.append(
            count_lines(partial(list, nodes_for(nodes, {"affinity": required, "containers": []})))
        )
    assert costs[1] - costs[0] < 10 * 1000, (
        "each value is read once, not once for each of the 200 nodes"
    )


def test_newcomers() -> None:
    assert growth(larger, newcomers=NEWCOMERS) <= MAX_GROWTH


@pytest.mark.parametrize(
    "scenario",
    [first_round, no_pods, nothing_fits, waits_in_vain, starts_failed],
    ids=lambda s: s.__name__,
)
def test_group_that_has_not_begun(scenario: Scenario) -> None:
    assert growth(scenario, forget=True) <= MAX_GROWTH


@pytest.mark.parametrize(
    "scenario",
    [steady, worker_lost, half_lost, nodes_lost, smaller, no_pods],
    ids=lambda s: s.__name__,
)
def test_stock_group(scenario: Scenario) -> None:
    assert growth(scenario, rendezvous={"backend": "c10d"}) <= MAX_GROWTH
