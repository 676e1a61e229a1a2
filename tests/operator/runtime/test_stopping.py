import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.operator.api_server import api_server, write_kubeconfig
from tests.ports import free_port

pytestmark = pytest.mark.process


async def until_ready(port: int, process: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while process.returncode is None:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError("it has ended")


async def test_sigterm_ends_it_well(tmp_path: Path) -> None:
    probe_port = free_port()
    async with api_server() as (server, url):
        environment = {**os.environ, "KUBECONFIG": str(write_kubeconfig(tmp_path, url))}
        command = [
            "-m",
            "elastic_pytorch_operator",
            "run",
            f"--port={free_port()}",
            f"--probe-port={probe_port}",
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stderr=asyncio.subprocess.PIPE
        )
        try:
            await until_ready(probe_port, process)
            async with asyncio.timeout(60):
                while not any("pods" in path for path in server.watched):
                    await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, said = await asyncio.wait_for(process.communicate(), 30)
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == 0, "not by kopf's handlers, which would take all parts down"
    assert b'"message": "stopped"' in said
