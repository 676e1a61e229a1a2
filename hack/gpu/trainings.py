"""Trainings whose group is changed from here: of real agents with scripted rounds, or stock."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.pauses import Pause, pause_of, steps_after
from tests.waiting import until
from tests.worker_image.agents import Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

SCRIPT = Path(__file__).with_name("train.py")
STEPS = 5  # between two changes
SET_UP_SECONDS = 5.0  # which the script sleeps, besides its real work
LIMIT_SECONDS = 120.0  # of each wait
ENVIRONMENT: dict[str, Any] = {"USE_LIBUV": 0, "OMP_NUM_THREADS": 1}
# Without the variable, torch 2.15 hangs when a node joins: the first one, which keeps its rank,
# does not send its address again.
STOCK = ENVIRONMENT | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1}
# At 1 s, torch sends none.
RENDEZVOUS = "join_timeout=120,last_call_timeout=1,keep_alive_interval=2,keep_alive_max_attempt=3"


@dataclass(frozen=True, slots=True)
class Options:
    parameters: str
    device: str

    def arguments(self, mode: str, folder: Path) -> tuple[Any, ...]:
        what = ("--mode", mode, "--parameters", self.parameters, "--device", self.device)
        set_up = ("--set-up-seconds", SET_UP_SECONDS)
        return SCRIPT, *what, *set_up, "--checkpoint", folder / "checkpoint"


class Job:
    def __init__(self, folder: Path, arguments: tuple[Any, ...]) -> None:
        self.events = Events(folder / "events")
        self.agents: dict[str, Agent] = {}
        self._folder, self._arguments = folder, arguments

    def kill(self, worker: str) -> None:
        self.agents[worker].kill()

    def close(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.wait()


def steps_of(job: Job, worker: str) -> list[dict[str, Any]]:
    return job.events.all(what="step", worker=worker)


def wait_for_steps(job: Job, worker: str, world: int, before: str = "") -> None:
    until(
        lambda: len(steps_after(steps_of(job, worker), before, world)) >= STEPS,
        f"{STEPS} steps of {worker} in a group of {world}",
        LIMIT_SECONDS,
    )


def measure(job: Job, worker: str, before: str, world: int) -> Pause:
    wait_for_steps(job, worker, world, before)
    pause = pause_of(steps_of(job, worker), before, world)
    assert pause is not None
    return pause


def group_of(job: Job, worker: str) -> str:
    return str(steps_of(job, worker)[-1]["group"])


class Rounds(Job):
    def __init__(self, folder: Path, arguments: tuple[Any, ...], **environment: Any) -> None:
        super().__init__(folder, arguments)
        self.operator = ScriptedOperator()
        self._environment = ENVIRONMENT | environment

    def add(self, worker: str) -> None:
        self.agents[worker] = Agent(
            worker, self.operator.url, self._folder, *self._arguments, **self._environment
        )

    def ready(self, *workers: str) -> None:
        self.operator.wait_for("ready", *workers, seconds=LIMIT_SECONDS)

    def begin(self, *workers: str) -> None:
        for worker in workers:
            self.add(worker)
        self.ready(*workers)
        self.operator.declare(*workers)
        wait_for_steps(self, "w1", len(workers))

    def lose_process(self, worker: str) -> None:
        self.events.kill(worker)
        self.operator.wait_for("failed", worker, seconds=LIMIT_SECONDS)

    def change(self, *workers: str, orderly: bool = True) -> Pause:
        """Forms the group of these pods; returns the pause of w1."""
        before = group_of(self, "w1")
        self.operator.declare(*workers, orderly=orderly)
        return measure(self, "w1", before, len(workers))

    def close(self) -> None:
        super().close()
        self.operator.go_away()


class Stock(Job):
    def __init__(self, folder: Path, options: Options) -> None:
        super().__init__(folder, options.arguments("stock", folder))
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._endpoint = f"127.0.0.1:{server.getsockname()[1]}"

    def add(self, worker: str) -> None:
        """Starts a node, which joins by itself. The first one serves the store."""
        host = f"--rdzv-backend c10d --rdzv-endpoint {self._endpoint} --local-addr 127.0.0.1"
        size = f"--nnodes 2:3 --nproc-per-node 1 --rdzv-id job --rdzv-conf {RENDEZVOUS}"
        run = "-m torch.distributed.run --monitor-interval 0.1 --max-restarts 99"
        options = (*host.split(), *size.split(), *self._arguments)
        command = [sys.executable, *run.split()]
        self.agents[worker] = Agent(worker, "", self._folder, *options, command=command, **STOCK)

    def begin(self, *workers: str) -> None:
        for worker in workers:
            self.add(worker)
        wait_for_steps(self, "w1", len(workers))


@contextmanager
def closing(job: Job) -> Iterator[None]:
    """Ends a training; adds the last errors of its workers' logs to an error."""
    try:
        yield
    except (AssertionError, TimeoutError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"{error} {_last_words(job)}") from error
    finally:
        job.close()


def _last_words(job: Job) -> str:
    lines = (line for agent in job.agents.values() for line in agent.text().splitlines()[-200:])
    return " ".join([line for line in lines if "Error" in line][-3:])
