"""Two replicas that share the jobs carry about twice the load of one: each answers the heartbeats of its own jobs.

As a program it prints what each does for any number of jobs: `python -m tests.scale.test_shards --jobs 200 --heartbeats 20`.
"""

import argparse
import asyncio
import json
import os
import sys
from typing import Any

import pytest

from tests.paths import ROOT
from tests.scale.shard_server import Work

pytestmark = pytest.mark.process

WORKERS = 10
PAUSE_SECONDS = 0.5  # between two heartbeats of an agent
START_SECONDS = 120.0


class Replica:
    """A replica in a process of its own, with the agents of its shard."""

    def __init__(self, jobs: int, shard: int, shards: int) -> None:
        self._options = (f"--jobs={jobs}", f"--workers={WORKERS}", f"--shard={shard}", f"--shards={shards}")
        self.agents: list[Agent] = []

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = (sys.executable, "-m", "tests.scale.shard_server", *self._options)
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*command, env=environment, stdin=pipe, stdout=pipe, limit=2**24)
        async with asyncio.timeout(START_SECONDS):
            told = await self._read()
        self.agents = [Agent(n, name, token, told["port"]) for n, (name, token) in enumerate(told["tokens"].items())]

    async def work(self) -> Work:
        """What it has done so far."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        return Work(**await self._read())

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()

    async def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(await self.process.stdout.readline())
        return found


class Agent:
    """Reports a step with each heartbeat, once its job has a round. Like a pod it has an address of its own."""

    def __init__(self, number: int, name: str, token: str, port: int) -> None:
        self._address, self._port, self._token = f"127.1.{number // 250}.{number % 250 + 1}", port, token
        self._rank = int(name.split("-worker-")[1].split("-", maxsplit=1)[0])
        self.round = 0

    async def send(self, heartbeats: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._address, 0))
        for step in range(heartbeats):
            state = "running" if self.round else "ready"
            report = {"incarnation": "a", "state": state, "round": self.round, "rank": self._rank, "port": 29501}
            report |= {"worldSize": WORKERS if self.round else 0, "progress": {"step": step, "firstStep": 0, "total": 10**6}}
            body = json.dumps(report).encode()
            head = (
                f"POST /v1/heartbeat HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self._token}\r\nContent-Length: {len(body)}"
            )
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            told = json.loads(await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split()[0])))
            self.round = told["round"]
            await asyncio.sleep(PAUSE_SECONDS)
        writer.close()


async def carry(jobs: int, shards: int, heartbeats: int) -> list[Work]:
    """What each replica does for the same load."""
    replicas = [Replica(jobs, shard, shards) for shard in range(shards)]
    await asyncio.gather(*(replica.start() for replica in replicas))
    before = [await replica.work() for replica in replicas]
    await asyncio.gather(*(agent.send(heartbeats) for replica in replicas for agent in replica.agents))
    after = [await replica.work() for replica in replicas]
    for replica in replicas:
        await replica.stop()
    assert all(agent.round for replica in replicas for agent in replica.agents), "each job has its group"
    return [
        Work(b.cpu_seconds - a.cpu_seconds, b.heartbeats - a.heartbeats, b.plans - a.plans, b.jobs)
        for a, b in zip(before, after, strict=True)
    ]


@pytest.mark.long
async def test_two_replicas_that_share_the_jobs_do_half_of_the_work_each() -> None:
    jobs, heartbeats = 20, 12
    [alone] = await carry(jobs, 1, heartbeats)
    both = await carry(jobs, 2, heartbeats)
    assert alone.heartbeats == sum(work.heartbeats for work in both) == jobs * WORKERS * heartbeats
    assert alone.jobs == sum(work.jobs for work in both) == jobs
    for work in both:
        share = work.jobs / jobs
        assert 0.25 <= share <= 0.75
        assert work.heartbeats == share * alone.heartbeats
        print(f"{work.cpu_seconds / alone.cpu_seconds:.2f} of the CPU time, for {share:.2f} of the jobs", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--heartbeats", type=int, default=20)
    chosen = parser.parse_args()
    for shards in (1, 2):
        for work in asyncio.run(carry(chosen.jobs, shards, chosen.heartbeats)):
            print(f"{shards} replicas: {work}", flush=True)
