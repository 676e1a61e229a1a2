"""Watches from outside: the API server's objects, the trainings' records and folders, /proc."""

import asyncio
import re
import signal
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import load_newest
from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_local.faults.driver import BROKEN
from elastic_pytorch_local.faults.steps import seconds_of
from measure.api import jobs_path, pods_path
from measure.cluster import ClusterDriver, container_statuses
from measure.commands import CommandFailed
from measure.kind_cluster import OPERATOR_NAMESPACE, OPERATORS
from measure.recorded_job import Told

from soak.timeline import PodSeen, StatusSeen, Usage, Violation

RETRY_SECONDS = 0.5
READ_SECONDS = 0.5
CHECKPOINT_SECONDS = 5.0
USAGE_SECONDS = 20.0
# Our processes on a node, one a line: those whose process id in their container is 1. A process is
# its id and its start.
PROCESSES = """
for p in $(grep -lsE 'elastic_pytorch(\\.agent|_operator)' /proc/[0-9]*/cmdline); do
  p=${p%/cmdline}
  grep -qE '^NSpid:.*[[:space:]]1$' $p/status 2>/dev/null || continue
  printf '%s@%s ' "${p#/proc/}" "$(sed 's/.*) //' $p/stat | cut -d' ' -f20)"
  role=$(tr '\\0' ' ' <$p/cmdline | grep -q agent && echo agent || echo operator)
  printf '%s %s ' "$role" "$(ls $p/fd | wc -l)"
  printf '%s ' "$(ls -l $p/fd | grep -c memfd:)"
  awk '/^VmRSS/ {m = $2} /^Threads/ {t = $2} END {print t, m}' $p/status
done
"""


class Observer:
    def __init__(self, driver: ClusterDriver, folder: Path, nodes: list[str]) -> None:
        self._api, self._commands, self._namespace = driver.api, driver.commands, driver.namespace
        self._folder, self._nodes = folder, nodes
        self.jobs: dict[str, JobView] = {}
        self.pods: dict[str, dict[str, Any]] = {}  # of workers, by name
        self.lines: dict[str, list[dict[str, Any]]] = defaultdict(list)  # the records, by job
        self.statuses: dict[str, list[StatusSeen]] = defaultdict(list)
        self.ends: list[PodSeen] = []
        self.killed: set[str] = set()  # pods that outlasted their grace period
        self.usages: list[Usage] = []
        self.restarts: list[PodSeen] = []  # of operators
        self.violations: list[Violation] = []

    def quiet_seconds(self) -> float:
        last = (lines[-1]["at"] for lines in self.lines.values() if lines)
        return time.time() - max(last, default=0.0)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for look in (
                self._see_jobs,
                self._see_pods,
                self._see_operators,
                self._read_records,
                self._load_checkpoints,
                self._sample_usage,
            ):
                group.create_task(look())

    async def _see_jobs(self) -> None:
        while True:
            with suppress(*BROKEN):
                async for _, manifest in self._api.watch(jobs_path(self._namespace), ""):
                    job = self.jobs[manifest["metadata"]["name"]] = view_job(manifest)
                    seen, status = self.statuses[job.name], status_of(job, time.time())
                    if not seen or replace(seen[-1], at=status.at) != status:
                        seen.append(status)
            await asyncio.sleep(RETRY_SECONDS)

    async def _see_pods(self) -> None:
        ended = set[str]()
        while True:
            known = set(self.pods)
            with suppress(*BROKEN):
                selector = f"labelSelector={names.LABEL_ROLE}%3D{names.ROLE_WORKER}"
                async for change, pod in self._api.watch(pods_path(self._namespace), selector):
                    name = pod["metadata"]["name"]
                    known.discard(name)
                    self.pods[name] = pod
                    if change == "DELETED":
                        del self.pods[name]
                    if outlasts_grace_period(pod):
                        self.killed.add(name)
                    if name not in ended and (how := end_of(change, pod)):
                        ended.add(name)
                        job = pod["metadata"]["labels"][names.LABEL_JOB_NAME]
                        node = pod["spec"].get("nodeName", "")
                        self.ends.append(PodSeen(time.time(), job, name, node, how))
            for name in known:  # gone while no watch was open
                self.pods.pop(name, None)
            await asyncio.sleep(RETRY_SECONDS)

    async def _see_operators(self) -> None:
        known, began = set[str](), time.time()
        path, selector = pods_path(OPERATOR_NAMESPACE), f"labelSelector={OPERATORS}"
        while True:
            with suppress(*BROKEN):
                async for _, pod in self._api.watch(path, selector):
                    self.restarts += restarts_of(pod, known, began)
            await asyncio.sleep(RETRY_SECONDS)

    async def _read_records(self) -> None:
        told: dict[Path, Told] = {}
        while True:
            for path in self._folder.glob("*.jsonl"):
                self.lines[path.stem] += told.setdefault(path, Told(path)).new()
            await asyncio.sleep(READ_SECONDS)

    async def _load_checkpoints(self) -> None:
        kept = set[str]()
        while True:
            for folder in [path for path in self._folder.iterdir() if path.is_dir()]:
                if (folder / "step").exists():  # of the plain script
                    whole = (folder / "step").read_text().isdigit()
                else:
                    whole = await asyncio.to_thread(_has_whole_checkpoint, folder)
                if folder.name in kept and not whole:
                    rule = "a checkpoint can be loaded"
                    self.violations.append(Violation(rule, folder.name, time.time(), "none can"))
                if whole:
                    kept.add(folder.name)
            await asyncio.sleep(CHECKPOINT_SECONDS)

    async def _sample_usage(self) -> None:
        while True:
            for node in self._nodes:
                with suppress(CommandFailed):
                    lines = await self._commands.docker("exec", node, "sh", "-c", PROCESSES)
                    self.usages += read_usage(time.time(), node, lines)
            await asyncio.sleep(USAGE_SECONDS)


def _has_whole_checkpoint(folder: Path) -> bool:
    with suppress(OSError):
        return load_newest(folder, StateVersion(0, 0)) is not None
    return False


def status_of(job: JobView, at: float) -> StatusSeen:
    spares = frozenset(worker.name for worker in job.workers if worker.state == "Spare")
    return StatusSeen(at, job.name, job.state, job.world, job.total_failures, spares)


def end_of(change: str, pod: dict[str, Any]) -> str:
    """How a pod has ended, or that its deletion has begun; empty: neither."""
    if change == "DELETED" or "deletionTimestamp" in pod["metadata"]:
        return "deleted"
    for status in training_statuses(pod):
        if ended := status.get("state", {}).get("terminated"):
            return f"its container ended with {ended.get('exitCode')}"
        if status.get("restartCount"):
            return "its container was started again"
    return ""


def training_statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [s for s in container_statuses(pod) if s["name"] == names.TRAINING_CONTAINER]


def outlasts_grace_period(pod: dict[str, Any]) -> bool:
    """Whether SIGKILL ended the training of a pod that is being deleted."""
    if "deletionTimestamp" not in pod["metadata"]:
        return False
    ended = (s.get("state", {}).get("terminated") or {} for s in training_statuses(pod))
    return any(state.get("exitCode") == 128 + signal.SIGKILL for state in ended)


def restarts_of(pod: dict[str, Any], known: set[str], since: float) -> list[PodSeen]:
    """The containers of an operator that have ended since a moment, unless its pod is deleted.

    A count of restarts would come minutes late. `known` has the ids of those that were returned.
    """
    if "deletionTimestamp" in pod["metadata"]:
        return []
    found, name = list[PodSeen](), pod["metadata"]["name"]
    for status in container_statuses(pod):
        for state in (status.get("lastState"), status.get("state")):
            ended = (state or {}).get("terminated")
            if not ended or ended["containerID"] in known:
                continue
            known.add(ended["containerID"])
            at, reason = seconds_of(ended["finishedAt"]), ended.get("reason", "no reason")
            if at >= since:
                how = f"its container ended with {ended.get('exitCode')} ({reason})"
                found.append(PodSeen(at, "", name, pod["spec"].get("nodeName", ""), how))
    return found


def read_usage(at: float, node: str, lines: str) -> list[Usage]:
    row = r"^(\d+@\d+) (agent|operator) (\d+) (\d+) (\d+) (\d+)$"
    return [
        Usage(at, f"{node}/{process}", role, int(files), int(memory), int(threads), int(kib) / 1024)
        for process, role, files, memory, threads, kib in re.findall(row, lines, re.MULTILINE)
    ]
