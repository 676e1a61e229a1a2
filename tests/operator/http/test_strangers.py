"""What a pod without a token costs the others over TLS, in processes of their own."""

import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.operator.agents_server import WORKERS
from tests.paths import ROOT

pytestmark = pytest.mark.process

ATTACK_SECONDS = 4.0
TRIES = 3  # other programs take the machine, too
SILENT_SECONDS = 3.0  # then an agent that speaks each second is silent
MAX_MEMORY_BYTES = 60 * 2**20
BEAT = {"incarnation": "a", "state": "ready", "round": 0}


@dataclass
class Served:
    process: asyncio.subprocess.Process
    port: int
    token: str
    tls: ssl.SSLContext

    @property
    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    @property
    def cpu_seconds(self) -> float:
        """What the process has used so far."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


async def run(*command: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment, stdout=asyncio.subprocess.PIPE, limit=2**20
    )


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    process = await run("-m", "tests.operator.agents_server")
    try:
        assert process.stdout is not None
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        yield Served(
            process,
            told["port"],
            told["tokens"][0],
            ssl.create_default_context(cadata=told["authorities"]),
        )
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def known_agent(operator: Served) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(local_addr=(WORKERS[0], 0), ssl=operator.tls)
    headers = {"Authorization": f"Bearer {operator.token}"}
    async with aiohttp.ClientSession(
        f"https://localhost:{operator.port}", connector=connector, headers=headers
    ) as session:
        yield session


@pytest.mark.parametrize("idle", [2000, 0])  # none: so that they do not keep the requests out
async def test_idle_connections_and_requests_of_a_stranger_cost_no_heartbeat_and_little_memory(
    idle: int,
) -> None:
    async with served() as operator, known_agent(operator) as agent:

        async def beat() -> float:
            began = time.monotonic()
            async with agent.post("/v1/agent", data=json.dumps(BEAT)) as answer:
                assert b"heartbeat" in await answer.read()
            return time.monotonic() - began

        async def longest_beat_of_an_attack() -> float:
            before, cpu_before = operator.memory_bytes, operator.cpu_seconds
            stranger = await run(
                "-m", "tests.operator.strangers", str(operator.port), str(ATTACK_SECONDS), str(idle)
            )
            telling = asyncio.create_task(stranger.communicate())
            seconds, memory = [], []
            while not telling.done():
                seconds.append(await beat())
                memory.append(operator.memory_bytes)
                await asyncio.wait({telling}, timeout=1)
            seen = json.loads((await telling)[0])
            grown = max(memory) - before
            print(f"\nin {ATTACK_SECONDS:g} s: {json.dumps(seen, indent=1)}")
            print(
                f"heartbeats: {len(seconds)}, median {sorted(seconds)[len(seconds) // 2]:.3f} s, "
                f"longest {max(seconds):.3f} s"
            )
            print(f"CPU: {(operator.cpu_seconds - cpu_before) / ATTACK_SECONDS:.0%} of a core")
            print(f"memory: {before / 2**20:.0f} MiB before, {grown / 2**20:.0f} MiB more at most")
            signs = (
                ("idle connections held for a second", "idle connections closed")
                if idle
                else ("requests answered 401",)
            )
            assert any(seen.get(sign) for sign in signs), "it was an attack"
            assert grown < MAX_MEMORY_BYTES
            return max(seconds)

        await beat()
        longest = [await longest_beat_of_an_attack()]
        while longest[-1] >= SILENT_SECONDS and len(longest) < TRIES:
            longest.append(await longest_beat_of_an_attack())
        assert min(longest) < SILENT_SECONDS
