"""Runs kubectl and helm on one cluster, and docker; each command returns its output."""

import asyncio
import os
from pathlib import Path

from elastic_pytorch_local.faults.driver import DriverError


class CommandFailed(DriverError): ...


class Commands:
    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self._kubectl, self._environment = kubectl, os.environ | {"KUBECONFIG": str(kubeconfig)}

    async def kubectl(self, *arguments: str) -> str:
        return await self._run(self._kubectl, arguments)

    async def helm(self, *arguments: str) -> str:
        return await self._run(self._kubectl.parent / "helm", arguments)

    async def docker(self, *arguments: str) -> str:
        return await self._run(Path("docker"), arguments)

    async def _run(self, program: Path, arguments: tuple[str, ...]) -> str:
        run = asyncio.ensure_future(self._communicate(program, arguments))
        try:
            returncode, output, error = await asyncio.shield(run)
        except asyncio.CancelledError:
            # What has begun must end: it might come after the command that undoes it.
            await asyncio.wait([run])
            raise
        if returncode:
            words = f"{program.name} {' '.join(arguments)}"
            raise CommandFailed(f"{words}: {error.strip() or output.strip()}")
        return output

    async def _communicate(
        self, program: Path, arguments: tuple[str, ...]
    ) -> tuple[int | None, str, str]:
        # In its own session, Ctrl-C does not reach it: this program still has commands to finish.
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=self._environment,
            start_new_session=True,
        )
        output, error = await process.communicate()
        return process.returncode, output.decode(errors="replace"), error.decode(errors="replace")
