"""What is done to the job, how it is undone, and what is expected of the job."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from measure.records import Started

from bench.nodes import Nodes
from bench.stage import Stage

KILL = "import os, time; print(time.time(), flush=True); os.kill({pid}, 9)"
LOG_SECONDS = 15.0  # the status may be faster than the log
UNNOTICED_SECONDS = 10.0  # how long the training is looked at after the operator is back: longer than any of its timeouts


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    text: str
    wanted: int  # how many workers the job wants from now on
    victims: tuple[str, ...] = ()  # the pods that it was done to


Inject = Callable[[Stage, int, AsyncExitStack], Awaitable[Fault]]
ToNode = Callable[[Nodes, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str  # what happens, for people
    inject: Inject  # makes the fault; gets the trial's number, and leaves on the stack what undoes it
    target: str  # of what the target is, a name of Figures
    seconds: float  # the median's target
    rounds: int  # how many it should take
    replicas: int = 3  # how many workers the job has before
    replaced_seconds: float | None = None  # the target for the making of another pod
    like: str = ""  # the same fault, to a script without a handler of SIGTERM; empty: this one's has none


async def kill_process(stage: Stage, turn: int, _: AsyncExitStack) -> Fault:
    members, watcher = stage.members(), stage.watcher
    rank = turn % len(members)

    def starts() -> list[Started]:
        return [record for record in watcher.timeline.every(Started) if record.pod == members[rank]]

    what = f"the log of {members[rank]} to tell its process"
    [pid] = (await watcher.until(starts, seconds=LOG_SECONDS, what=what))[-1].pids
    python = ("python", "-c", KILL.format(pid=pid))
    output = await stage.commands.kubectl("-n", watcher.namespace, "exec", members[rank], "-c", "pytorch", "--", *python)
    return Fault(float(output), f"SIGKILL to rank {rank}'s process", len(members))


async def kill_container(stage: Stage, turn: int, _: AsyncExitStack) -> Fault:
    """Kills the agent, too, as the kernel does when it runs out of memory."""
    members = stage.members()
    rank = turn % len(members)
    [status] = stage.watcher.pods[members[rank]]["status"]["containerStatuses"]
    at = time.time()
    await stage.nodes.kill_container(stage.watcher.node_of(members[rank]), status["containerID"].partition("://")[2])
    return Fault(at, f"SIGKILL to rank {rank}'s container", len(members), (members[rank],))


async def lose_pod(stage: Stage, turn: int, _: AsyncExitStack, *, rank_0: bool = False) -> Fault:
    members = stage.members()
    rank = 0 if rank_0 else 1 + turn % (len(members) - 1)
    at = time.time()
    await stage.delete_pod(stage.watcher.namespace, members[rank], grace=False)
    return Fault(at, f"delete rank {rank}'s pod, no grace", len(members), (members[rank],))


async def resize(replicas: int, stage: Stage, _turn: int, _undo: AsyncExitStack) -> Fault:
    victims = tuple(stage.members()[replicas:])
    at = time.time()
    await stage.scale(replicas)
    return Fault(at, f"kubectl scale to {replicas}", replicas, victims)


async def restart_operator(stage: Stage, _turn: int, _undo: AsyncExitStack) -> Fault:
    wanted = len(stage.members())
    at = await stage.end_leader(grace=False)
    await asyncio.sleep(UNNOTICED_SECONDS)
    return Fault(at, "delete the operator's pod, no grace", wanted)


def of_node(text: str, make: ToNode, undo: ToNode, *, leader: bool | None = False) -> Inject:
    """Returns how to make a fault to a node with one worker that is not rank 0, with the operator that leads or without."""

    async def inject(stage: Stage, _: int, stack: AsyncExitStack) -> Fault:
        pod = await stage.lone_victim(leader=leader)
        node, wanted = stage.watcher.node_of(pod), len(stage.members())
        stack.push_async_callback(undo, stage.nodes, node)
        at = time.time()
        await make(stage.nodes, node)
        return Fault(at, text, wanted, (pod,))

    return inject


AGAIN = "trains_again"
drain = of_node("kubectl drain of a node", Nodes.drain, Nodes.uncordon, leader=None)
lose_node = of_node("docker kill of a node", Nodes.kill, Nodes.start)
lose_leader = of_node("docker kill of the leader's node", Nodes.kill, Nodes.start, leader=True)
cut_node = of_node("node drops all packets", Nodes.cut, Nodes.mend)
BESIDE_LEADER = "the leader's node dies with a worker"
ROWS = (
    Scenario("kill-process", "a worker process is killed", kill_process, AGAIN, 0.8, rounds=1),
    Scenario("kill-container", "a worker's container is killed", kill_container, AGAIN, 1.2, rounds=2),
    Scenario("lose-pod", "a worker's pod is killed", lose_pod, AGAIN, 1.2, rounds=2),
    Scenario("lose-rank-0", "rank 0's pod is killed", partial(lose_pod, rank_0=True), AGAIN, 1.2, rounds=2),
    Scenario("drain", "a worker's node is drained", drain, "pause", 0.8, rounds=2),
    Scenario("scale-up", "scaled from 3 to 4", partial(resize, 4), "pause", 0.8, rounds=1),
    Scenario("scale-down", "scaled from 4 to 3", partial(resize, 3), "pause", 0.8, rounds=1, replicas=4),
    Scenario("lose-node", "a worker's node dies", lose_node, AGAIN, 3.0, rounds=2, replaced_seconds=6.0),
    Scenario("lose-node-leader", BESIDE_LEADER, lose_leader, AGAIN, 6.0, rounds=2, replaced_seconds=6.0),
    Scenario("cut-node", "a worker's node is cut off", cut_node, AGAIN, 5.0, rounds=2, replaced_seconds=6.0),
    Scenario("operator-restart", "the operator is killed", restart_operator, "longest_gap", 0.3, rounds=0),
)
PLAIN = {row.name: row for row in ROWS}


def rows(row: Scenario) -> list[Scenario]:
    """Returns a kind of fault, and after a loss the same to a script with a handler of SIGTERM."""
    handler = replace(row, name=f"{row.name}-handler", title=f"{row.title}, handler", like=row.name)
    return [row, handler] if row.target == AGAIN else [row]


SCENARIOS = {row.name: row for plain in ROWS for row in rows(plain)}
