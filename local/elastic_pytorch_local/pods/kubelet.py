"""The kubelet of local mode: a pod's training container is a process group of this machine.

There are no images and no mounts: `python` is this interpreter, and a path below a volume's mount
path, in the command or the environment, becomes the volume's folder. A pod's DNS name becomes its
address, in the environment of later pods.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.job import training_container

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_local.manifests.config_objects import Config
from elastic_pytorch_local.manifests.variables import container_variables, expand
from elastic_pytorch_local.pods.mounts import map_path, mount_volumes

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
KILL_SECONDS = 5.0  # for a group that has received SIGKILL
READ_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 16  # of output
BAR_SECONDS = 1.0  # between two states of a progress bar
NO_CONFIG: Config = MappingProxyType({})
POD_VARIABLE = "ELASTIC_PYTORCH_LOCAL_POD"  # marks a pod's processes, in any session
MESSAGE_LINES, MESSAGE_BYTES = 80, 2048  # of a kubelet's termination message from a log


def print_line(pod: str, line: str) -> None:
    """Prints a line of a pod; stops this process without a reader, as after `| head`."""
    try:
        print(f"{pod} | {line}", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGTERM)


class LocalKubelet:
    """Runs the pods of a FakeCluster; `paths` has folders for paths of containers."""

    def __init__(
        self,
        cluster: FakeCluster,
        workdir: Path,
        paths: Mapping[str, Path],
        pythonpath: str,
        write_line: Callable[[str, str], None],
        config: Config = NO_CONFIG,
    ) -> None:
        self._cluster = cluster
        self._workdir = workdir
        self._paths = dict(paths)
        self._pythonpath = pythonpath
        self._write_line = write_line
        self._config = config
        self._addresses = itertools.count(2)
        self._hosts: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._deleting: dict[str, asyncio.Event] = {}
        cluster.watch(self._on_change)

    def process_id(self, pod: str) -> int:
        """The id of a running pod's first process, which leads its process group."""
        return self._processes[pod].pid

    async def close(self) -> None:
        tasks = list(self._running.values())
        for name, process in self._processes.items():
            _kill(process, name)
        if tasks:
            await asyncio.wait(tasks, timeout=KILL_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_change(self, kind: str, change: str, found: Manifest) -> None:
        if kind != "Pod":
            return
        name = found["metadata"]["name"]
        if change == "DELETED" or found["metadata"].get("deletionTimestamp"):
            if name in self._deleting:
                self._deleting[name].set()
        elif (
            found["spec"].get("nodeName")
            and name not in self._running
            and found["status"].get("phase") == "Pending"
        ):
            self._deleting[name] = asyncio.Event()
            self._running[name] = asyncio.ensure_future(self._run(found))

    async def _run(self, pod: Manifest) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        try:
            await self._run_container(pod)
        # Any fault must end the pod, or its end would be awaited forever.
        except Exception as fault:
            logger.exception("cannot run a pod", extra={"pod": name})
            self._set_state(pod, _start_error(fault), "Failed")
        finally:
            self._running.pop(name, None)
            self._processes.pop(name, None)
            if self._deleting.pop(name).is_set():
                self._cluster.finish_deletion(namespace, name)

    async def _run_container(self, pod: Manifest) -> None:
        name, container = pod["metadata"]["name"], training_container(pod)
        number = next(self._addresses)
        address = f"127.0.{number // 250}.{number % 250 + 1}"
        if pod["spec"].get("hostname"):
            self._hosts[f"{pod['spec']['hostname']}.{pod['spec'].get('subdomain', '')}"] = address
        mapped = self._paths | mount_volumes(self._workdir, pod, container, self._config)
        variables = container_variables(pod, container, self._config, address, container["name"])
        values = {key: map_path(self._map_host(v), mapped) for key, v in variables.items()}
        folder = container.get("workingDir")
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(container, variables, mapped),
                env=self._environment(pod, values),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                cwd=map_path(folder, mapped) if folder else None,
            )
        except OSError as error:
            self._set_state(pod, _start_error(error), "Failed", podIP=address)
            return
        self._processes[name] = process
        self._set_state(pod, {"running": {}}, "Running", podIP=address)
        stopping = asyncio.ensure_future(self._stop_when_deleted(name, pod, process))
        ending = asyncio.ensure_future(_end_with(process, name))
        last_lines = deque[str](maxlen=MESSAGE_LINES)

        async def pass_on(stream: asyncio.StreamReader | None) -> None:
            output, read = OutputLines(), b"."
            while read and stream is not None:
                read = await stream.read(READ_BYTES)
                for line in output.take(read, time.monotonic()):
                    last_lines.append(line)
                    self._write_line(name, line)

        try:
            # As in a cluster, each has lines of its own, as one may end within a line.
            await asyncio.gather(pass_on(process.stdout), pass_on(process.stderr))
            code = await process.wait()
        finally:
            stopping.cancel()
            ending.cancel()
            _kill(process, name)
        code = 128 - code if code < 0 else code
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "message": "\n".join(last_lines)[-MESSAGE_BYTES:] if code else "",
        }
        self._set_state(pod, {"terminated": ended}, "Failed" if code else "Succeeded")

    async def _stop_when_deleted(
        self, name: str, pod: Manifest, process: asyncio.subprocess.Process
    ) -> None:
        await self._deleting[name].wait()
        if process.returncode is None:
            # As a kubelet does, only to the container's first process.
            os.kill(process.pid, signal.SIGTERM)
        await asyncio.sleep(pod["spec"].get("terminationGracePeriodSeconds", 30))
        _kill(process, name)

    def _set_state(self, pod: Manifest, state: Manifest, phase: str, **status: str) -> None:
        metadata = pod["metadata"]
        statuses = [{"name": training_container(pod)["name"], "state": state}]
        changed = {**status, "phase": phase, "containerStatuses": statuses}
        self._cluster.set_pod_status(metadata["namespace"], metadata["name"], changed)

    def _environment(self, pod: Manifest, variables: Mapping[str, str]) -> dict[str, str]:
        environment, name = {**os.environ, **variables}, pod["metadata"]["name"]
        token = self._workdir / "tokens" / name
        token.parent.mkdir(parents=True, exist_ok=True)
        token.write_text(self._cluster.issue_token(pod["metadata"]["namespace"], name))
        pythonpath = filter(None, [self._pythonpath, environment.get("PYTHONPATH")])
        # With `torchrun` and the `python3` of a shell script beside this interpreter.
        programs = (str(Path(sys.executable).parent), environment.get("PATH", os.defpath))
        return environment | {
            "ELASTIC_PYTORCH_TOKEN_FILE": str(token),
            "ELASTIC_PYTORCH_TERMINATION_LOG": os.devnull,
            "GLOO_SOCKET_IFNAME": "lo",
            POD_VARIABLE: name,
            "PYTHONPATH": os.pathsep.join(pythonpath),
            "PYTHONUNBUFFERED": "1",
            "PATH": os.pathsep.join(programs),
        }

    def _map_host(self, word: str) -> str:
        host, colon, port = word.partition(":")
        return f"{self._hosts[host]}:{port}" if colon and host in self._hosts else word


def _start_error(error: Exception) -> Manifest:
    return {"terminated": {"exitCode": 128, "reason": "StartError", "message": str(error)}}


def _command(
    container: Manifest, variables: Mapping[str, str], mapped: Mapping[str, Path]
) -> list[str]:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    words = [map_path(expand(word, variables), mapped) for word in words]
    return [sys.executable, *words[1:]] if words[0] in ("python", "python3") else words


async def _end_with(process: asyncio.subprocess.Process, pod: str) -> None:
    """Kills what a pod's first process leaves behind when it ends.

    `process.wait()` would also wait for the end of the output, which the others hold open.
    """
    # asyncio has no event for it.
    while process.returncode is None:  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
    _kill(process, pod)


def processes_of(pod: str) -> list[int]:
    mark, found = f"{POD_VARIABLE}={pod}".encode(), []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
        except OSError:  # gone, or another user's
            continue
    return found


def _kill(process: asyncio.subprocess.Process, pod: str) -> None:
    """Kills the process group, and the pod's processes in sessions of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in processes_of(pod):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


class OutputLines:
    """A carriage return restarts its line, as in a terminal, so that a progress bar is one line."""

    def __init__(self) -> None:
        self._rest = b""
        self._shown_at = float("-inf")  # when a bar was last shown

    def take(self, data: bytes, now: float) -> list[str]:
        """The lines that new output completes, in monotonic seconds; empty output ends the last."""
        *complete, rest = (self._rest + data).split(b"\n")
        if not data and rest:
            complete, rest = [*complete, rest], b""
        found = [_visible(line) for line in complete]
        bar, over, unfinished = rest.rpartition(b"\r")
        if over and now - self._shown_at >= BAR_SECONDS:
            self._shown_at = now
            found.append(_visible(bar))
        while len(unfinished) > MAX_LINE_BYTES:
            found.append(_visible(unfinished[:MAX_LINE_BYTES]))
            unfinished = unfinished[MAX_LINE_BYTES:]
        self._rest = unfinished
        return found


def _visible(line: bytes) -> str:
    """What a terminal shows of a restarted line."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
