"""What faults are made and watched through: a cluster, or local mode."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import aiohttp

Object = dict[str, Any]
Change = tuple[str, Object]

BROKEN = (aiohttp.ClientError, TimeoutError, ValueError)  # a connection, or a line of it


class DriverError(Exception):
    """What was asked for was refused, or is not possible there; says why."""


class Driver(Protocol):
    """One namespace with jobs and their pods.

    Each method that changes something raises DriverError, OSError, TimeoutError or aiohttp's
    ClientError if it fails.
    """

    namespace: str

    async def create_job(self, manifest: Mapping[str, Any]) -> None: ...
    async def delete_job(self, name: str) -> None:
        """Deletes a job, if there is one, and returns once its pods are gone."""

    async def scale_job(self, name: str, replicas: int) -> None: ...
    async def suspend_job(self, name: str, *, suspend: bool) -> None: ...
    async def delete_pod(self, name: str, *, force: bool) -> None:
        """Deletes a pod, if there is one, as `kubectl delete pod` does; by force: with `--grace-period=0 --force`."""

    async def kill_pod(self, pod: Mapping[str, Any]) -> None:
        """Sends SIGKILL to all processes of a pod's training container, as the kernel does when memory is short."""

    async def kill_process(self, pod: Mapping[str, Any], pid: int) -> float:
        """Sends SIGKILL to one process of a pod's training container, by its process id there; returns when.

        A time is in seconds since the epoch.
        """

    def watch_jobs(self, name: str) -> AsyncIterator[Change]:
        """Yields a job as it is and as it changes, each with ADDED, MODIFIED or DELETED, until the watch ends."""

    def watch_pods(self, job: str) -> AsyncIterator[Change]:
        """Yields a job's worker pods in the same way."""

    def log_lines(self, pod: str) -> AsyncIterator[str]:
        """Yields the lines of a pod's log from its first one on, each behind its RFC 3339 time, until it ends."""
