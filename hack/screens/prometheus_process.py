"""A Prometheus on this machine, which hack/prometheus.sh has unpacked: started, asked, and ended."""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

READY_SECONDS = 60.0
END_SECONDS = 20.0


class Prometheus:
    """One that runs.

    Args:
        url: where it answers.
        session: for the questions.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def query_range(self, expression: str, start: int, end: int, step: int) -> list[dict[str, Any]]:
        """The series that an expression has between two moments, both in seconds since 1970.

        Raises:
            RuntimeError: it does not understand the expression.
        """
        query = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        async with self._session.post(f"{self._url}/api/v1/query_range", data=query) as answer:
            said = await answer.json()
        if said["status"] != "success":
            raise RuntimeError(f"{expression}: {said['error']}")
        found: list[dict[str, Any]] = said["data"]["result"]
        return found


@asynccontextmanager
async def prometheus(
    program: Path, folder: Path, session: aiohttp.ClientSession, targets: Mapping[str, int], job: str, scrape_seconds: int
) -> AsyncIterator[Prometheus]:
    """Runs a Prometheus for as long as the context lasts.

    Args:
        program: the executable.
        folder: where it keeps what it has scraped.
        session: for questions to it.
        targets: the port of each pod that it scrapes, by the pod's name.
        job: its name for all of them.
        scrape_seconds: between two scrapes.
    """
    static = [{"targets": [f"127.0.0.1:{port}"], "labels": {"pod": pod}} for pod, port in targets.items()]
    scrape = {"job_name": job, "static_configs": static}
    every = f"{scrape_seconds}s"
    config = {"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": [scrape]}
    (folder / "prometheus.yaml").write_text(json.dumps(config))  # JSON is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [str(program), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={address}", "--log.level=warn"]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
    try:
        await _until_ready(f"http://{address}/-/ready", session)
        yield Prometheus(f"http://{address}", session)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()


async def _until_ready(url: str, session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
