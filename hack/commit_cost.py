"""Measures what the training library costs a script: each step, and each commit of states of several sizes.

.venv/bin/python hack/commit_cost.py
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state.commit_interval import next_interval
from rich.console import Console
from rich.table import Table
from torch import nn
from torch._C._distributed_c10d import TCPStore

STEP_SECONDS = 0.02
STEPS = 300
MEGABYTES = (10, 100, 1000)
COMMITS = 9
INTERVAL_STEP_SECONDS = (0.02, 0.1, 0.5, 2.0)


class Numbers(nn.Module):
    """A model of so many bytes, in a hundred tensors as a real one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.randn(size // 400) for _ in range(100))


class Costs(NamedTuple):
    """What commits of a state cost.

    Attributes:
        alone: seconds that each holds up the training.
        flushed: the same, while another one is being written to disk.
        memory: bytes that the pod's memory of the state takes when nothing is written to disk, and at most.
    """

    alone: list[float]
    flushed: list[float]
    memory: tuple[int, int]


def commits(folder: str, size: int) -> Costs:
    """Commits a state of this many bytes several times."""
    state = elastic.State(folder, every=1, model=Numbers(size), flush_seconds=1e9)
    state.restore()
    snapshot = state._snapshot
    assert snapshot is not None

    def memory() -> int:
        return os.fstat(snapshot.fd).st_blocks * 512

    def seconds(count: int) -> list[float]:
        found = []
        for _ in range(count):
            begun = time.perf_counter()
            state.commit()
            found.append(time.perf_counter() - begun)
        return found

    state.flush()
    seconds(3)  # memory is new once
    alone = seconds(COMMITS)
    usual = memory()
    state._flush(now=True)
    flushed, most = [], 0
    for _ in range(COMMITS):
        flushed += seconds(1)
        most = max(most, memory())
    state.close()
    return Costs(alone, flushed, (usual, most))


def train(rank: int, world: int, port: int, results: Any) -> None:
    """Takes steps of 20 ms in a group; tells what commit took of each, with nothing to commit."""
    torch.set_num_threads(1)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)}
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, use_libuv=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    state = elastic.State(None, every=10**9)
    state.restore()
    wall, cpu = [], []
    for _ in range(STEPS):
        time.sleep(STEP_SECONDS)
        dist.all_reduce(torch.ones(1000))
        begun, worked = time.perf_counter(), time.thread_time()
        state.commit(loss=1.0)
        wall.append(time.perf_counter() - begun)
        cpu.append(time.thread_time() - worked)
    if rank == 0:
        results.put((statistics.mean(wall), statistics.mean(cpu)))
    dist.barrier()


def in_group(world: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU, that a step's commit takes in a group."""
    server = PodServer()
    os.environ[LOCAL_SOCKET] = server.prepare()
    server.start()
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    port = 20000 + os.getpid() % 10000
    processes = [context.Process(target=train, args=(rank, world, port, results)) for rank in range(world)]
    for process in processes:
        process.start()
    found: tuple[float, float] = results.get()
    for process in processes:
        process.join()
    server.close()
    del os.environ[LOCAL_SOCKET]
    return found


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(column, justify="right")
    for row in rows:
        made.add_row(*row)
    return made


def main() -> int:
    console = Console(width=None if sys.stdout.isatty() else 120)
    rows: list[tuple[str, ...]] = []
    for world in (1, 2, 3):
        wall, cpu = in_group(world)
        rows.append((str(world), f"{wall * 1e6:.0f} µs", f"{cpu * 1e6:.0f} µs", f"{100 * cpu / STEP_SECONDS:.2f} %"))
    per_step = ("ranks", "time", "CPU time", "CPU time of a step")
    console.print(table("A step's commit without a state, steps of 20 ms (mean)", per_step, rows))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in MEGABYTES:
            costs = commits(str(Path(folder, str(megabytes))), megabytes * 10**6)
            alone, flushed = statistics.median(costs.alone), statistics.median(costs.flushed)
            times = tuple(f"{each:.2f}" for each in (memory / (megabytes * 10**6) for memory in costs.memory))
            intervals = tuple(str(next_interval(1, alone, seconds)) for seconds in INTERVAL_STEP_SECONDS)
            rows.append((f"{megabytes} MB", f"{1e3 * alone:.1f} ms", f"{1e3 * flushed:.1f} ms", *times, *intervals))
    steps = tuple(f"every, {1e3 * seconds:.0f} ms" for seconds in INTERVAL_STEP_SECONDS)
    headings = ("state", "a commit", "during a flush", "memory / state", "at most", *steps)
    console.print(table("Commits (medians), and how many steps lie between them with steps so long", headings, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
