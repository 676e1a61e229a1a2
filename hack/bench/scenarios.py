"""What is done to the job, how it is undone, and what is expected of the job."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from stage import TEMPLATE_LABEL, Stage

KILL = "import os, time; print(time.time(), flush=True); os.kill({pid}, 9)"
OPERATOR_SECONDS = 60.0
UNNOTICED_SECONDS = 10.0  # how long the training is looked at after the operator is back: longer than any of its timeouts


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done.

    Attributes:
        at: when.
        text: what, for people.
        wanted: how many workers the job wants from now on.
        victims: the pods that it was done to.
    """

    at: float
    text: str
    wanted: int
    victims: tuple[str, ...] = ()


Inject = Callable[[Stage, int, AsyncExitStack], Awaitable[Fault]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of fault.

    Attributes:
        name: what it is called in tables.
        inject: makes the fault; gets the trial's number, and leaves on the stack what undoes it.
        title: what happens, for people.
        replicas: how many workers the job has before.
        target: of what the target is, a name of Figures.
        seconds: the median's target.
        replaced_seconds: the target for the making of another pod.
        rounds: how many rounds it should take.
        like: the same fault, to a script without a handler of SIGTERM; empty: this one's has none.
    """

    name: str
    inject: Inject
    title: str
    target: str
    seconds: float
    rounds: int
    replicas: int = 3
    replaced_seconds: float | None = None
    like: str = ""


async def kill_process(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """SIGKILL to a worker process, of another rank each time."""
    del undo
    members = stage.watcher.members()
    pod = members[turn % len(members)]
    [pid] = stage.watcher.pids_of(pod)
    python = KILL.format(pid=pid)
    output = await stage.commands.kubectl("-n", stage.namespace, "exec", pod, "-c", "pytorch", "--", "python", "-c", python)
    return Fault(float(output), f"SIGKILL to rank {turn % len(members)}'s process", len(members))


async def lose_pod(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """A pod of a rank other than 0 is gone at once."""
    del undo
    members = stage.watcher.members()
    return await _kill_pod(stage, 1 + turn % (len(members) - 1))


async def lose_rank_0(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """Rank 0's pod, which serves the group's store, is gone at once."""
    del turn, undo
    return await _kill_pod(stage, 0)


async def _kill_pod(stage: Stage, rank: int) -> Fault:
    members = stage.watcher.members()
    at = time.time()
    await stage.api.kill_pod(stage.namespace, members[rank])
    return Fault(at, f"delete rank {rank}'s pod, no grace", len(members), (members[rank],))


async def kill_container(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """SIGKILL to all processes of a pod, the agent's too, as when the kernel runs out of memory; nobody has told Kubernetes."""
    del undo
    members = stage.watcher.members()
    rank = turn % len(members)
    pod = members[rank]
    at = time.time()
    await stage.nodes.kill_container(stage.watcher.node_of(pod), stage.watcher.container_of(pod))
    return Fault(at, f"SIGKILL to rank {rank}'s container", len(members), (pod,))


async def drain(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """Kubectl drain of a node with one worker; other jobs' pods on it are let be."""
    del turn
    pod = await stage.lone_victim()
    node, wanted = stage.watcher.node_of(pod), len(stage.watcher.members())
    undo.push_async_callback(stage.api.cordon, node, cordoned=False)
    at = time.time()
    await stage.commands.kubectl(
        "drain", node, f"--pod-selector={TEMPLATE_LABEL}", "--ignore-daemonsets", "--delete-emptydir-data"
    )
    return Fault(at, "kubectl drain of a node", wanted, (pod,))


async def scale_up(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """One more worker is wanted."""
    del turn, undo
    at = time.time()
    await stage.scale(4)
    return Fault(at, "kubectl scale to 4", 4)


async def scale_down(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """One worker less is wanted."""
    del turn, undo
    victims = tuple(stage.watcher.members())[-1:]
    at = time.time()
    await stage.scale(3)
    return Fault(at, "kubectl scale to 3", 3, victims)


async def lose_node(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """A node without the operator ends, with a worker on it."""
    del turn
    pod = await stage.lone_victim(without_operator=True)
    node, wanted = stage.watcher.node_of(pod), len(stage.watcher.members())
    undo.push_async_callback(stage.nodes.start, node)
    at = time.time()
    await stage.nodes.kill(node)
    return Fault(at, "docker kill of a node", wanted, (pod,))


async def lose_node_leader(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """The node of the operator that leads ends, with a worker on it."""
    del turn
    pod = await stage.victim_beside_leader(OPERATOR_SECONDS)
    node, wanted = stage.watcher.node_of(pod), len(stage.watcher.members())
    undo.push_async_callback(stage.nodes.start, node)
    at = time.time()
    await stage.nodes.kill(node)
    return Fault(at, "docker kill of the leader's node", wanted, (pod,))


async def cut_node(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """Nothing gets to or from a node any more, and nobody is told."""
    del turn
    pod = await stage.lone_victim(without_operator=True)
    node, wanted = stage.watcher.node_of(pod), len(stage.watcher.members())
    undo.push_async_callback(stage.nodes.mend, node)
    at = time.time()
    await stage.nodes.cut(node)
    return Fault(at, "node drops all packets", wanted, (pod,))


async def restart_operator(stage: Stage, turn: int, undo: AsyncExitStack) -> Fault:
    """The operator's pod is gone at once; then it is waited for, and a while longer."""
    del turn, undo
    wanted = len(stage.watcher.members())
    at = await stage.kill_operator(OPERATOR_SECONDS)
    await stage.pass_time(UNNOTICED_SECONDS)
    return Fault(at, "delete the operator's pod, no grace", wanted)


PLAIN = {
    scenario.name: scenario
    for scenario in (
        Scenario("kill-process", kill_process, "a worker process is killed", "trains_again", 0.8, rounds=1),
        Scenario("kill-container", kill_container, "a worker's container is killed", "trains_again", 1.2, rounds=2),
        Scenario("lose-pod", lose_pod, "a worker's pod is killed", "trains_again", 1.2, rounds=2),
        Scenario("lose-rank-0", lose_rank_0, "rank 0's pod is killed", "trains_again", 1.2, rounds=2),
        Scenario("drain", drain, "a worker's node is drained", "pause", 0.8, rounds=2),
        Scenario("scale-up", scale_up, "scaled from 3 to 4", "pause", 0.8, rounds=1),
        Scenario("scale-down", scale_down, "scaled from 4 to 3", "pause", 0.8, rounds=1, replicas=4),
        Scenario("lose-node", lose_node, "a worker's node dies", "trains_again", 3.0, rounds=2, replaced_seconds=6.0),
        Scenario(
            "lose-node-leader",
            lose_node_leader,
            "the leader's node dies with a worker",
            "trains_again",
            6.0,
            rounds=2,
            replaced_seconds=6.0,
        ),
        Scenario("cut-node", cut_node, "a worker's node is cut off", "trains_again", 5.0, rounds=2, replaced_seconds=6.0),
        Scenario("operator-restart", restart_operator, "the operator is killed", "longest_gap", 0.3, rounds=0),
    )
}

LOSSES = ("kill-process", "kill-container", "lose-pod", "lose-rank-0", "lose-node", "lose-node-leader", "cut-node")


def _rows(scenario: Scenario) -> list[Scenario]:
    """A kind of fault, and after a loss the same to a script with a handler of SIGTERM."""
    if scenario.name not in LOSSES:
        return [scenario]
    name, title = f"{scenario.name}-handler", f"{scenario.title}, handler"
    return [scenario, replace(scenario, name=name, title=title, like=scenario.name)]


SCENARIOS = {row.name: row for scenario in PLAIN.values() for row in _rows(scenario)}
