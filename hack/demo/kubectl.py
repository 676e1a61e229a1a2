"""The demo's hands on the cluster: the kubectl commands that a user would type."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

RESOURCE = "elasticpytorchjobs.elasticpytorch.dev"
JOB_LABEL = "elasticpytorch.dev/job-name"
INTERRUPTED_SECONDS = 3.0


class KubectlError(Exception):
    """A kubectl command has failed; says which, and what it printed."""


class Kubectl:
    """Acts on one job, by its name, in the kubeconfig's namespace."""

    def __init__(self, binary: Path, kubeconfig: Path, job: str) -> None:
        self.job = job
        self._binary = binary
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig)}

    async def apply(self, manifest: dict[str, Any]) -> None:
        """Make the job."""
        await self._run("apply", "-f", "-", stdin=json.dumps(manifest))

    async def scale(self, replicas: int) -> None:
        """Set how many workers the job shall have."""
        await self._run("scale", f"{RESOURCE}/{self.job}", f"--replicas={replicas}")

    async def kill_pod(self, pod: str) -> None:
        """Delete a pod without giving it a moment to say goodbye."""
        await self._run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    async def delete_job(self) -> None:
        """Delete the job, if there is one, and come back once its pods are gone."""
        await self._run("delete", f"{RESOURCE}/{self.job}", "--ignore-not-found", "--cascade=foreground", "--timeout=90s")
        await self._run("wait", "pod", "-l", f"{JOB_LABEL}={self.job}", "--for=delete", "--timeout=90s")

    async def watch_job(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the job as it is and as it changes, each time with ADDED, MODIFIED or DELETED, until the watch ends."""
        arguments = ("get", f"{RESOURCE}/{self.job}", "-o", "json", "--watch", "--output-watch-events")
        async with self._lines(*arguments) as lines:
            async for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]

    async def follow_log(self, pod: str) -> AsyncIterator[str]:
        """Yield the lines of a worker's log, each after its RFC 3339 time, until the container ends."""
        async with self._lines("logs", "--follow", "--timestamps", "-c", "pytorch", pod) as lines:
            async for line in lines:
                yield line.rstrip("\n")

    async def _run(self, *arguments: str, stdin: str = "") -> str:
        process = await self._start(*arguments, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        try:
            output, error = await process.communicate(stdin.encode())
        except asyncio.CancelledError:
            # What has been sent is let arrive: else an `apply` might come after the `delete` that follows a Ctrl-C.
            await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=INTERRUPTED_SECONDS)
            raise
        if process.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {error.decode().strip()}")
        return output.decode()

    @asynccontextmanager
    async def _lines(self, *arguments: str) -> AsyncIterator[AsyncIterator[str]]:
        process = await self._start(*arguments, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
        assert process.stdout is not None
        try:
            yield (line.decode(errors="replace") async for line in process.stdout)
        finally:
            # Not process.kill(): Popen would look for the exit status and take it away from asyncio's watcher.
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await process.wait()

    async def _start(self, *arguments: str, stdin: int, stderr: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._binary,
            *arguments,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=self._environment,
            limit=1 << 20,
            # Ctrl-C is for the demo alone, which still has commands to finish.
            start_new_session=True,
        )
