"""What is done to the job, how it is undone, and what is expected of the job."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from measure import engine
from measure.cluster import ClusterDriver
from measure.engine import Target

from bench.stage import BenchStage, Choose, Scenario

LOG_SECONDS = 15.0  # the status may be faster than the log
# Longer than any timeout of the training, after the operator is back.
UNNOTICED_SECONDS = 10.0

ToNode = Callable[[ClusterDriver, str], Awaitable[None]]


async def kill_process(stage: BenchStage, turn: int) -> Target:
    members = stage.members()
    pod = members[turn % len(members)]
    log, what = stage.watcher.log, f"the log of {pod} to tell its process"
    [pid] = await stage.watcher.until(lambda: log.pids.get(pod), seconds=LOG_SECONDS, what=what)
    return engine.kill_process(stage.driver, stage.watcher.pods[pod], pid, stage.watcher.name)


async def kill_container(stage: BenchStage, turn: int) -> Target:
    # By index: the same one twice, without progress in between, would count as a failure.
    members = sorted(stage.members())
    pod = stage.watcher.pods[members[turn % len(members)]]
    return engine.kill_pods(stage.driver, [pod], frozenset({stage.watcher.name}))


async def lose_pod(stage: BenchStage, turn: int, *, rank_0: bool = False) -> Target:
    members = stage.members()
    rank = 0 if rank_0 else 1 + turn % (len(members) - 1)
    return engine.delete_pod(stage.driver, members[rank], stage.watcher.name, force=True)


async def resize(replicas: int, stage: BenchStage, _: int) -> Target:
    return engine.scale(stage.driver, stage.watcher.name, replicas, stage.members()[replicas:])


async def restart_operator(stage: BenchStage, _: int) -> Target:
    async def end() -> float:
        at = await stage.end_leader(force=True)
        await asyncio.sleep(UNNOTICED_SECONDS)
        return at

    return Target("delete the operator's pod, no grace", end)


def of_node(text: str, make: ToNode, undo: ToNode, *, leader: bool | None = False) -> Choose:
    """A fault to a node with one worker, not rank 0, with or without the leading operator."""

    async def choose(stage: BenchStage, _: int) -> Target:
        pod = await stage.lone_victim(leader=leader)
        node, driver = stage.node_of(pod), stage.driver
        do, undo_it = partial(make, driver, node), partial(undo, driver, node)
        return Target(text, do, undo_it, pods=frozenset({pod}), node=node)

    return choose


AGAIN = "again"
Cluster = ClusterDriver
drain = of_node("kubectl drain of a node", Cluster.drain_node, Cluster.uncordon_node, leader=None)
lose_node = of_node("docker kill of a node", Cluster.kill_node, Cluster.start_node)
lose_leader = of_node(
    "docker kill of the leader's node", Cluster.kill_node, Cluster.start_node, leader=True
)
cut_node = of_node("node drops all packets", Cluster.cut_node, Cluster.mend_node)
ROWS = (
    Scenario("kill-process", kill_process, AGAIN, 0.8, rounds=1),
    Scenario("kill-container", kill_container, AGAIN, 1.2, rounds=2),
    Scenario("lose-pod", lose_pod, AGAIN, 1.2, rounds=2),
    Scenario("lose-rank-0", partial(lose_pod, rank_0=True), AGAIN, 1.2, rounds=2),
    Scenario("drain", drain, "pause", 0.8, rounds=2),
    Scenario("scale-up", partial(resize, 4), "pause", 0.8, rounds=1, after=4),
    Scenario("scale-down", partial(resize, 3), "pause", 0.8, rounds=1, replicas=4, after=3),
    Scenario("lose-node", lose_node, AGAIN, 3.0, rounds=2, whole_seconds=9.0),
    Scenario("lose-node-leader", lose_leader, AGAIN, 6.0, rounds=2, whole_seconds=9.0),
    Scenario("cut-node", cut_node, AGAIN, 5.0, rounds=2, whole_seconds=9.0),
    Scenario("operator-restart", restart_operator, "pause", 0.3, rounds=0),
)
SCENARIOS = {row.name: row for row in ROWS}
