"""Real agents, as processes of this machine, each with a loopback address of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elastic_pytorch.stopping.stacks import children

from tests.paths import ROOT
from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.one_gpu import one_gpu
from tests.worker_image.warm_python import INHERITED, ForkedProcess, warm_python

SCRIPTS = ROOT / "tests" / "worker_image" / "scripts"

AGENT = ("-m", "elastic_pytorch.agent")
# One that imports torch itself, with /proc/PID/environ of its own.
NEW_AGENT = [sys.executable, *AGENT]
# Has a torchrun take part, as its own agent.
JOINING = {"PET_RDZV_BACKEND": "elastic-pytorch", "PET_NNODES": "1:4", "PET_MAX_RESTARTS": 3}


class Agent:
    """An agent process and what it leaves behind; a variable that is None is not set.

    It inherits the variables that the tests began with. What a test, or a module that it imports,
    sets in their process reaches no agent.

    Attributes:
        log: where its and its workers' stderr goes.
        out: where its workers' stdout goes.
    """

    def __init__(
        self,
        worker: str,
        url: str,
        directory: Path,
        *arguments: Any,
        command: list[str] | None = None,
        **environment: Any,
    ) -> None:
        self.worker = worker
        self.log = directory / f"{worker}.log"
        self.out = directory / f"{worker}.out"
        self.termination_log = directory / f"{worker}.termination"
        self.termination_log.touch()
        token = directory / f"{worker}.token"
        token.write_text(worker + "\n")
        told = INHERITED | {
            "ELASTIC_PYTORCH_OPERATOR_URL": url,
            "ELASTIC_PYTORCH_TOKEN_FILE": str(token),
            "ELASTIC_PYTORCH_JOB": "job",
            "ELASTIC_PYTORCH_JOB_UID": "uid-of-job",
            "ELASTIC_PYTORCH_WORKER": worker,
            "ELASTIC_PYTORCH_WORKER_INDEX": worker[1:],
            "ELASTIC_PYTORCH_GRACE_SECONDS": "8",
            "ELASTIC_PYTORCH_TERMINATION_LOG": str(self.termination_log),
            **one_gpu(worker),
            "EVENTS": str(directory / "events"),
            "WORKER": worker,
            **environment,
        }
        environ = {name: str(value) for name, value in told.items() if value is not None}
        words = [str(argument) for argument in arguments]
        warm = None if command else warm_python(environ, worker)
        self.process: subprocess.Popen[bytes] | ForkedProcess
        with self.log.open("ab") as err, self.out.open("ab") as out:
            if warm:
                self.process = warm.start(
                    [*AGENT, *words], environ, directory, out.fileno(), err.fileno()
                )
                return
            self.process = subprocess.Popen(
                [*(command or NEW_AGENT), *words],
                env=environ,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        family = descendants(self.process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        return self.process.wait(seconds)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


Agents = Callable[..., Agent]


@contextlib.contextmanager
def started_agents(url: str, directory: Path) -> Iterator[Agents]:
    """Yields how to start one: `agents("w0", script, arguments…, VARIABLE=value)`.

    At the end all are killed.
    """
    started: list[Agent] = []

    def start(worker: str, *arguments: Any, **environment: Any) -> Agent:
        started.append(Agent(worker, url, directory, *arguments, **environment))
        return started[-1]

    try:
        yield start
    finally:
        for agent in started:
            agent.kill()
            agent.wait()
            print(f"--- {agent.worker}, exit code {agent.process.returncode}\n{agent.text()}")


def program(path: Path, text: str) -> Path:
    """Writes a program, which is run by what its first line names: a shell, if it names none."""
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def descendants(pid: int) -> list[int]:
    return [descendant for child in children(pid) for descendant in (child, *descendants(child))]


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its parent to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def python_path(folder: Path) -> str:
    """The variable PYTHONPATH with a folder before those that the tests have."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


class Events:
    """The lines that a test's scripts write to one file, of which each is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events: list[dict[str, Any]] = []
        self._place = 0
        path.touch()

    def all(self, **wanted: Any) -> list[dict[str, Any]]:
        with self.path.open("rb") as file:
            file.seek(self._place)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._place += len(lines + newline)
        self._events += map(json.loads, lines.splitlines())
        return [
            event
            for event in self._events
            if all(event.get(key) == value for key, value in wanted.items())
        ]

    def processes(self, **wanted: Any) -> int:
        return len({event["pid"] for event in self.all(**wanted)})

    def kill(self, worker: str) -> None:
        """Kills the process that has told a worker's newest step."""
        os.kill(self.all(what="step", worker=worker)[-1]["pid"], signal.SIGKILL)

    def wait(self, count: int = 1, **wanted: Any) -> list[dict[str, Any]]:
        until(
            lambda: len(self.all(**wanted)) >= count,
            lambda: f"{count} of {wanted}; the last are {self.all()[-5:]}",
        )
        return self.all(**wanted)

    def until_step(
        self,
        step: int,
        world: int,
        seconds: float = WAIT_SECONDS,
        agents: Sequence[Agent] = (),
        **wanted: Any,
    ) -> None:
        """Waits for a step of a group of this size, or of its wanted rank, while agents live."""
        deadline = time.monotonic() + seconds
        while not any(
            event["step"] >= step for event in self.all(what="step", WORLD_SIZE=world, **wanted)
        ):
            assert time.monotonic() < deadline, (
                f"no step {step} in a world of {world} {wanted}; last: {self.all()[-4:]}"
            )
            assert all(agent.process.poll() is None for agent in agents), "an agent has ended"
            time.sleep(0.02)
