"""Runs the commands of kubectl and docker that a fault is made with."""

import asyncio
from pathlib import Path


class CommandFailed(Exception):
    """A command has failed; says which, and what it printed."""


class Commands:
    """Kubectl on the bench's cluster, and docker."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self._kubectl = [str(kubectl), f"--kubeconfig={kubeconfig}"]

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl; return what it printed."""
        return await self._run([*self._kubectl, *arguments], stdin)

    async def docker(self, *arguments: str) -> str:
        """Run docker; return what it printed."""
        return await self._run(["docker", *arguments], "")

    async def _run(self, command: list[str], stdin: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for the bench alone, which still has commands to finish.
            start_new_session=True,
        )
        talk = asyncio.ensure_future(process.communicate(stdin.encode()))
        try:
            output, error = await asyncio.shield(talk)
        except asyncio.CancelledError:
            # What has begun is let end: else it might come after the command that undoes it.
            await talk
            raise
        if process.returncode:
            raise CommandFailed(f"{' '.join(command)}: {error.decode().strip() or output.decode().strip()}")
        return output.decode()
