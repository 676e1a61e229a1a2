"""Runs commands of kubectl and docker."""

import asyncio
import os
from pathlib import Path


class CommandFailed(Exception):
    """A command has failed; says which, and what it printed."""


class Commands:
    """Kubectl on one cluster, and docker.

    Args:
        kubectl: the program.
        kubeconfig: of the cluster.
        interrupted_seconds: how long a command that has begun may still take after an interruption; None: until it ends.
    """

    def __init__(self, kubectl: Path, kubeconfig: Path, *, interrupted_seconds: float | None = None) -> None:
        self._kubectl, self._environment = kubectl, os.environ | {"KUBECONFIG": str(kubeconfig)}
        self._interrupted_seconds = interrupted_seconds

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Runs kubectl; returns what it printed."""
        return await self._run(self._kubectl, arguments, stdin)

    async def docker(self, *arguments: str) -> str:
        """Runs docker; returns what it printed."""
        return await self._run(Path("docker"), arguments, "")

    async def _run(self, program: Path, arguments: tuple[str, ...], stdin: str) -> str:
        run = asyncio.ensure_future(self._communicate(program, arguments, stdin))
        try:
            returncode, output, error = await asyncio.shield(run)
        except asyncio.CancelledError:
            # What has begun may end: otherwise it might come after the command that undoes it.
            await asyncio.wait([run], timeout=self._interrupted_seconds)
            raise
        if returncode:
            printed = error.strip() or output.strip()
            raise CommandFailed(f"{program.name} {' '.join(arguments)}: {printed}")
        return output

    async def _communicate(self, program: Path, arguments: tuple[str, ...], stdin: str) -> tuple[int | None, str, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for this program alone, which still has commands to finish
        )
        output, error = await process.communicate(stdin.encode())
        return process.returncode, output.decode(), error.decode()
