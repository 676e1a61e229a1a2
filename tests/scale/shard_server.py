"""One replica of an operator that shares the jobs with others: it knows all pods, but plans the jobs of its shard and hears their agents.

It stands in for what docs/decisions/0011-one-leader-until-it-is-full.md describes. The API server is in memory, and part of the process.
As a program it prints its port and its agents' tokens as a line of JSON. It answers each line that it reads with what it has done so far.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass

from elastic_pytorch_operator.agents.heartbeat import Heartbeat
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey, parse_job

from tests.operator.builders import a_manifest, a_worker_pod

NAMESPACE = "default"


@dataclass
class Work:
    """What a replica has done.

    Attributes:
        cpu_seconds: of the whole process.
        heartbeats: that it has answered.
        plans: that it has made.
        jobs: that these plans were for.
    """

    cpu_seconds: float = 0.0
    heartbeats: int = 0
    plans: int = 0
    jobs: int = 0


def shard_of(job: str, shards: int) -> int:
    """Which shard a job belongs to, by its name, which stands here for its UID."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:8], "big") % shards


class PlacedPods(FakeCluster):
    """A cluster whose pods come with their nodes, so that thousands are placed in no time."""

    def _schedule(self) -> None:
        return


class CountingRegistry(AgentRegistry):
    """Counts heartbeats."""

    heartbeats = 0

    def note_heartbeat(self, job_uid: str, worker: str, beat: Heartbeat, now: float) -> float | None:
        self.heartbeats += 1
        return super().note_heartbeat(job_uid, worker, beat, now)


class ShardQueue(WorkQueue[JobKey]):
    """Takes in the jobs of one shard, and counts those that it hands out."""

    def __init__(self, shard: int, shards: int) -> None:
        super().__init__()
        self._shard, self._shards = shard, shards
        self.taken_out: list[JobKey] = []

    def add(self, key: JobKey, delay_seconds: float = 0.0, *, urgent: bool | None = None) -> None:
        if shard_of(key.name, self._shards) == self._shard:
            super().add(key, delay_seconds, urgent=urgent)

    async def get(self) -> JobKey:
        key = await super().get()
        self.taken_out.append(key)
        return key


async def serve(jobs: int, workers: int, shard: int, shards: int) -> None:
    """Serves until its input ends."""
    cluster, cache, registry, queue = PlacedPods(nodes=10), Cache(), CountingRegistry(), ShardQueue(shard, shards)

    def watch(kind: str, change: str, manifest: Manifest) -> None:
        for key in cache.observe_change(kind, change, manifest, time.monotonic()):
            queue.add(key)

    tokens = {}
    for number in range(jobs):
        job = cluster.apply_job(a_manifest(f"job-{number}", replicas=workers, minimum=workers, maximum=workers))
        for index in range(workers):
            pod = a_worker_pod(parse_job(job), index)
            pod["spec"]["nodeName"] = f"node-{index % 10}"
            name = (await cluster.create_pod(pod))["metadata"]["name"]
            running = {"phase": "Running", "podIP": f"10.{number // 250}.{number % 250}.{index}"}
            containers = [{"name": names.TRAINING_CONTAINER, "state": {"running": {}}}]
            cluster.set_pod_status(NAMESPACE, name, {**running, "containerStatuses": containers})
            if shard_of(f"job-{number}", shards) == shard:
                tokens[name] = cluster.issue_token(NAMESPACE, name)
    cluster.watch(watch)
    controller = Controller(cluster, cache, registry, queue, AgentSettings("http://operator"))
    await controller.prime()
    api = AgentApi(cache, registry, TokenReviewer(cluster), queue.add)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with listening(api, "127.0.0.1", 0) as port:
        working = asyncio.create_task(controller.work())
        print(json.dumps({"port": port, "tokens": tokens}), flush=True)
        while await lines.readline():
            done = Work(time.process_time(), registry.heartbeats, len(queue.taken_out), len(set(queue.taken_out)))
            print(json.dumps(asdict(done)), flush=True)
        working.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--jobs", "--workers", "--shard", "--shards"):
        parser.add_argument(option, type=int, required=True)
    asyncio.run(serve(**vars(parser.parse_args())))
