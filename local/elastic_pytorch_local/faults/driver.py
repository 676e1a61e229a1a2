"""The interface through which faults are made and watched: of a cluster, or of local mode."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import aiohttp

Object = dict[str, Any]
Change = tuple[str, Object]

BROKEN = (aiohttp.ClientError, TimeoutError, ValueError)  # a connection, or a line of it


class DriverError(Exception):
    """A request was refused, or is impossible there; says why."""


# A request that changes something is refused, or has no answer.
TROUBLE = (DriverError, aiohttp.ClientError, OSError)


class Driver(Protocol):
    """One namespace with jobs and their pods.

    Each method that changes something may raise one of TROUBLE.
    """

    namespace: str

    async def create_job(self, manifest: Mapping[str, Any]) -> None: ...
    async def delete_job(self, name: str) -> None:
        """Deletes a job, if there is one, and returns once its pods are gone."""

    async def scale_job(self, name: str, replicas: int) -> None: ...
    async def delete_pod(self, name: str, *, force: bool) -> None:
        """Deletes a pod, if there is one; by force: with `--grace-period=0 --force`."""

    async def kill_pod(self, pod: Mapping[str, Any]) -> None:
        """Sends SIGKILL to all processes of a pod's training container, like the OOM killer."""

    async def kill_process(self, pod: Mapping[str, Any], pid: int) -> float:
        """Sends SIGKILL to a process of a pod's training container, by its id there.

        Returns when, in seconds since the epoch.
        """

    def watch_jobs(self, name: str) -> AsyncIterator[Change]:
        """Yields a job and its changes, with ADDED, MODIFIED or DELETED, until the watch ends."""

    def watch_pods(self, job: str) -> AsyncIterator[Change]:
        """Yields a job's worker pods likewise."""

    def log_lines(self, pod: str) -> AsyncIterator[str]:
        """Yields a pod's whole log until it ends, each line behind its RFC 3339 time."""
