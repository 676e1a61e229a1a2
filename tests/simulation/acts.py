"""What happens to a simulated world: each act has dice of its own, so that one may be left out."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest

from tests.simulation.agents import OWN, Agent
from tests.simulation.api_server import ENDED, NAMESPACE
from tests.simulation.operators import KINDS
from tests.simulation.users import (
    change_queue,
    change_spares,
    delete_job,
    delete_workload,
    edit_invalidly,
    lower_quota,
    scale,
    suspend,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

DAY_SECONDS = 86_400.0
HOUR = 3600.0
KILLED = {"exitCode": -9, "signal": "SIGKILL", "exception": "", "message": "killed by SIGKILL"}
SOFT_TAINT = {
    "key": "DeletionCandidateOfClusterAutoscaler",
    "value": "1",
    "effect": "PreferNoSchedule",
}
LIES: tuple[dict[str, Any], ...] = (
    {"newest": 1000},
    {"rank": 4095, "worldSize": 4096},
    {"localWorldSize": 4096},
    {"state": "failed", "failure": {"exitCode": 1, "message": "x" * 5000}},
    {"state": "preparing", "round": 0},
    {"restarts": 10**9, "port": 0},
    {"progress": {"step": 10**12, "firstStep": 1, "total": 1}},
)
SURE_TAINT = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Act:
    """What happens at a time, in seconds since the beginning, with dice of its number."""

    number: int
    at: float
    name: str


Do = Callable[["World", random.Random], str]


def delete_pod(world: "World", dice: random.Random) -> str:
    pod = _choose_pod(world, dice)
    if pod:
        world.server.begin_deletion(NAMESPACE, pod["metadata"]["name"])
    return _worker(pod)


def force_delete_pod(world: "World", dice: random.Random) -> str:
    pod = _choose_pod(world, dice)
    if pod:
        world.server.finish_deletion(NAMESPACE, pod["metadata"]["name"])
    return _worker(pod)


def evict_pod(world: "World", dice: random.Random) -> str:
    pod = _choose_pod(world, dice)
    if pod:
        world.nodes.evict(pod["metadata"]["name"])
    return _worker(pod)


def kill_container(world: "World", dice: random.Random) -> str:
    agent = _choose_agent(world, dice)
    if agent:
        agent.end(137)
    return _place(agent)


def fail_script(world: "World", dice: random.Random) -> str:
    agent = _choose_agent(world, dice)
    if agent:
        agent.fail(OWN)
    return _place(agent)


def kill_process(world: "World", dice: random.Random) -> str:
    agent = _choose_agent(world, dice)
    if agent:
        agent.fail(KILLED)
    return _place(agent)


def cut_agent(world: "World", dice: random.Random) -> str:
    agent, seconds = _choose_agent(world, dice), dice.choice((1.0, 5.0, 20.0, 60.0))
    if agent:
        agent.lose_network()
        world.undo_after(seconds, agent.regain_network)
    return f"{_place(agent)} for {seconds:.0f} s"


def slow_agents(world: "World", dice: random.Random) -> str:
    agents = [agent for agent in world.living_agents() if dice.random() < 0.3]
    for agent in agents:
        agent.slow_seconds = 1.5

    def undo() -> None:
        for agent in agents:
            agent.slow_seconds = 0.0

    world.undo_after(60.0, undo)
    return f"{len(agents)}"


def kill_node(world: "World", dice: random.Random) -> str:
    return _lose_node(world, dice, dies=True)


def cut_node(world: "World", dice: random.Random) -> str:
    return _lose_node(world, dice, dies=False)


def drain_node(world: "World", dice: random.Random) -> str:
    name = _choose_node(world, dice)
    world.server.change_node(name, unschedulable=True)
    for agent in world.nodes.on(name):
        world.nodes.evict(agent.pod.name)
    world.undo_after(
        dice.uniform(60.0, 600.0), lambda: world.server.change_node(name, unschedulable=False)
    )
    return name


def reclaim_node(world: "World", dice: random.Random) -> str:
    name, seconds = _choose_node(world, dice), dice.choice((30.0, 120.0))
    world.server.change_node(name, taints=[SURE_TAINT])
    number = world.next_number()

    def replace() -> None:
        world.nodes.remove(name)
        world.nodes.add(f"node-{number}")

    world.undo_after(seconds, replace)
    return f"{name} in {seconds:.0f} s"


def doubt_node(world: "World", dice: random.Random) -> str:
    name = _choose_node(world, dice)
    world.server.change_node(name, taints=[SOFT_TAINT])
    world.undo_after(dice.uniform(30.0, 600.0), lambda: world.server.change_node(name, taints=[]))
    return name


def slow_node(world: "World", dice: random.Random) -> str:
    name = _choose_node(world, dice)
    node = world.nodes.nodes[name]
    node.slow_seconds = 20.0
    world.undo_after(300.0, partial(setattr, node, "slow_seconds", 0.0))
    return name


def trouble_api(world: "World", dice: random.Random) -> str:
    trouble, seconds = world.server.trouble, dice.choice((2.0, 8.0, 30.0, 120.0))
    kind = dice.choice(("409", "410", "429", "500", "away", "some"))
    if kind == "away":
        trouble.share, trouble.code = 1.0, 0
        world.break_watches()
    elif kind == "some":
        trouble.share, trouble.code = 0.3, 0
    else:
        trouble.share, trouble.code = 0.5, int(kind)

    def undo() -> None:
        trouble.share, trouble.code = 0.0, 0

    world.undo_after(seconds, undo)
    return f"{kind} for {seconds:.0f} s"


def slow_api(world: "World", dice: random.Random) -> str:
    trouble, seconds = world.server.trouble, dice.choice((8.0, 30.0, 120.0))
    trouble.seconds = dice.choice((1.0, 3.0))
    world.undo_after(seconds, partial(setattr, trouble, "seconds", 0.0))
    return f"by {trouble.seconds:.0f} s for {seconds:.0f} s"


def break_watches(world: "World", dice: random.Random) -> str:
    kinds = tuple(kind for kind in KINDS if dice.random() < 0.5)
    world.break_watches(kinds)
    return ", ".join(kinds)


def stall_watch(world: "World", dice: random.Random) -> str:
    kind, seconds = dice.choice(KINDS), dice.choice((5.0, 30.0, 240.0))
    for process in world.processes[: dice.randint(1, 2)]:
        process.watches.stall(kind)
        world.undo_after(seconds, partial(process.watches.break_off, (kind,)))
    return f"{kind} for {seconds:.0f} s"


def lag_watches(world: "World", dice: random.Random) -> str:
    world.server.trouble.watch_seconds = 3.0
    world.undo_after(60.0, partial(setattr, world.server.trouble, "watch_seconds", 0.0))
    return ""


def kill_leader(world: "World", dice: random.Random) -> str:
    leaders = [process for process in world.processes if process.leads]
    for process in leaders:
        world.undo_after(*world.kill_process(process, dice.uniform(1.0, 20.0)))
    return f"{len(leaders)}"


def kill_operators(world: "World", dice: random.Random) -> str:
    for process in list(world.processes):
        world.undo_after(*world.kill_process(process, dice.uniform(1.0, 60.0)))
    return ""


def cut_leader(world: "World", dice: random.Random) -> str:
    seconds = dice.choice((1.0, 4.0, 30.0))
    for process in world.processes:
        if process.leads:
            process.connection.is_cut = True
            process.watches.break_off()
            world.undo_after(seconds, partial(setattr, process.connection, "is_cut", False))
    return f"for {seconds:.0f} s"


def suspend_machine(world: "World", dice: random.Random) -> str:
    """Time passes for the other replica, while the leader's machine stands still."""
    seconds = dice.choice((2.0, 5.0, 100.0))
    for process in world.processes:
        process.suspended_seconds += seconds
    return f"for {seconds:.0f} s"


def bound_namespace(world: "World", dice: random.Random) -> str:
    world.server.trouble.pods = dice.randint(1, 40)
    world.undo_after(
        dice.uniform(30.0, 300.0), partial(setattr, world.server.trouble, "pods", None)
    )
    return f"to {world.server.trouble.pods}"


def deny_pods(world: "World", dice: random.Random) -> str:
    world.server.trouble.denies_pods = True
    world.undo_after(
        dice.uniform(5.0, 60.0), partial(setattr, world.server.trouble, "denies_pods", False)
    )
    return ""


def rewrite_labels(world: "World", dice: random.Random) -> str:
    world.server.trouble.rewrites = True
    world.undo_after(HOUR, partial(setattr, world.server.trouble, "rewrites", False), active=False)
    return ""


def close_service(world: "World", dice: random.Random) -> str:
    """No agent reaches the operator, or some do not, while they reach each other."""
    length, share = dice.choice((0, 1, 2)), dice.choice((0.3, 1.0))
    # By the table of silence, one that is not heard while others of its group are is lost after 3
    # s.
    seconds = (2.0, 10.0, 60.0)[length] if share == 1.0 else 0.5 * (1 + length)
    agents = [agent for agent in world.living_agents() if dice.random() < share]
    world.closed |= share == 1.0
    for agent in agents:
        agent.shut_out = True
        agent.disconnect(dropped=True)

    def undo() -> None:
        world.closed &= share < 1.0
        for agent in agents:
            agent.shut_out = False

    world.undo_after(seconds, undo)
    return f"to {len(agents)} for {seconds:g} s"


def lie(world: "World", dice: random.Random) -> str:
    """An agent says of itself what is not so: whatever its token lets it say."""
    agent = _choose_agent(world, dice)
    said = dice.choice(LIES)
    if agent:
        agent.lies = said
        world.undo_after(dice.choice((2.0, 30.0)), partial(setattr, agent, "lies", {}))
    return f"{_place(agent)}: {', '.join(said)}"


def fill_disk(world: "World", dice: random.Random) -> str:
    """The kubelets evict each pod of one index for what it writes, until its user mends it."""
    pod = _choose_pod(world, dice)
    if pod:
        labels = pod["metadata"]["labels"]
        filling = labels[names.LABEL_JOB_NAME], labels[names.LABEL_WORKER_INDEX]
        world.nodes.filling.add(filling)
        world.nodes.evict_for_disk(pod)
        world.undo_after(300.0, partial(world.nodes.filling.discard, filling))
    return _worker(pod)


# How often each happens, beside the others.
ACTS: dict[Do, int] = {
    delete_pod: 4, force_delete_pod: 2, evict_pod: 4, kill_container: 5, fail_script: 3,
    kill_process: 3, cut_agent: 5, slow_agents: 1, kill_node: 4, cut_node: 4, drain_node: 3,
    reclaim_node: 3, doubt_node: 2, slow_node: 1, trouble_api: 5, slow_api: 1, break_watches: 3,
    stall_watch: 2, lag_watches: 2, kill_leader: 5, kill_operators: 1, cut_leader: 2,
    suspend_machine: 1, scale: 6, change_spares: 3, suspend: 3, edit_invalidly: 2, delete_job: 1,
    lower_quota: 3, bound_namespace: 1, deny_pods: 1, rewrite_labels: 1, change_queue: 2,
    delete_workload: 1, close_service: 2, lie: 2, fill_disk: 1,
}  # fmt: skip
BY_NAME = {act.__name__: act for act in ACTS}


def calendar(
    seed: int, days: float, per_day: float = 24.0, names: Collection[str] = BY_NAME
) -> list[Act]:
    """What happens in a number of days: alone, or a few acts within a minute of each other.

    Args:
        seed: of all.
        days: how many.
        per_day: how many such moments a day has, on average.
        names: of the acts that may happen.
    """
    dice, at, acts = random.Random(f"calendar {seed}"), 300.0, []
    chosen = {act: weight for act, weight in ACTS.items() if act.__name__ in names}
    while at < days * DAY_SECONDS:
        moment = at
        for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5))):
            (act,) = dice.choices(list(chosen), list(chosen.values()))
            acts.append(Act(len(acts), moment, act.__name__))
            moment += dice.choice((0.0, 0.05, 0.5, 3.0, 15.0)) * dice.random()
        at += max(120.0, dice.expovariate(per_day / DAY_SECONDS))
    return acts


def _choose_pod(world: "World", dice: random.Random) -> Manifest | None:
    found = [pod for pod in world.server.all_of("Pod") if pod["status"].get("phase") not in ENDED]
    return dice.choice(found) if found else None


def _choose_agent(world: "World", dice: random.Random) -> Agent | None:
    found = list(world.living_agents())
    return dice.choice(found) if found else None


def _choose_node(world: "World", dice: random.Random) -> str:
    """A node with pods, mostly."""
    busy = sorted(
        {agent.node for agent in world.living_agents() if world.nodes.nodes.get(agent.node)}
    )
    return (
        dice.choice(busy) if busy and dice.random() < 0.9 else dice.choice(list(world.nodes.nodes))
    )


def _lose_node(world: "World", dice: random.Random, *, dies: bool) -> str:
    name, seconds = _choose_node(world, dice), dice.choice((2.0, 15.0, 60.0, 400.0))
    if world.nodes.nodes[name].up:
        world.nodes.fail(name, dies=dies)
        for process in list(world.processes):
            if process.node == name and dies:
                world.undo_after(*world.kill_process(process, 10.0))
        world.undo_after(seconds, lambda: world.nodes.bring_back(name))
    return f"{name} for {seconds:.0f} s"


def _worker(pod: Manifest | None) -> str:
    return pod["metadata"]["name"].rpartition("-")[0] if pod else "none"


def _place(agent: Agent | None) -> str:
    return agent.pod.name.rpartition("-")[0] if agent else "none"
