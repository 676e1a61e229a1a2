"""Measures what the training library costs a script: each step, and each commit of states of several sizes.

.venv/bin/python hack/commit_cost.py
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state.commit_interval import next_interval
from rich.console import Console
from rich.table import Table
from torch import nn

STEP_SECONDS = 0.02
STEPS = 300
MEGABYTES = (10, 100, 1000)
TENSORS = 300  # of a state
COMMITS = 9
INTERVAL_STEP_SECONDS = (0.02, 0.1, 0.5, 2.0)


def commits(folder: str, size: int) -> Iterator[tuple[float, float]]:
    """Commits a state of this many bytes, first alone, then while another commit is being written to disk.

    Yields:
        The median seconds that a commit holds up the training, and the most memory that committed states take, as a multiple of the state.
    """
    model = nn.ParameterList(torch.randn(size // (4 * TENSORS)) for _ in range(TENSORS))
    state = elastic.State(folder, every=1, model=model, flush_seconds=1e9)
    state.restore()
    snapshot = state._snapshot
    assert snapshot is not None
    state.flush()
    for _ in range(3):  # memory is new once
        state.commit()
    for flushing in (False, True):
        if flushing:
            state._flush(now=True)
        seconds, memory = [], 0
        for _ in range(COMMITS):
            begun = time.perf_counter()
            state.commit()
            seconds.append(time.perf_counter() - begun)
            memory = max(memory, os.fstat(snapshot.fd).st_blocks * 512)
        yield statistics.median(seconds), memory / size
    state.close()


def train(rank: int, world: int, store: str, results: Any) -> None:
    """Takes steps of 20 ms in a group; reports the mean time and CPU time of a step's commit, with nothing to commit."""
    torch.set_num_threads(1)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)}
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    state = elastic.State(None, every=10**9)
    state.restore()
    wall, cpu = 0.0, 0.0
    for _ in range(STEPS):
        time.sleep(STEP_SECONDS)
        dist.all_reduce(torch.ones(1000))
        begun, worked = time.perf_counter(), time.thread_time()
        state.commit(loss=1.0)
        wall, cpu = wall + time.perf_counter() - begun, cpu + time.thread_time() - worked
    if rank == 0:
        results.put((wall / STEPS, cpu / STEPS))
    state.close()
    dist.barrier()
    dist.destroy_process_group()  # its threads must not outlive the interpreter


def in_group(world: int) -> tuple[float, float]:
    """Returns the seconds, and the seconds of CPU, that a step's commit takes in a group."""
    server, results = PodServer(), mp.get_context("spawn").SimpleQueue()
    os.environ[LOCAL_SOCKET] = server.prepare()
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (world, f"{folder}/store", results), nprocs=world)  # type: ignore[attr-defined, no-untyped-call]
    server.close()
    del os.environ[LOCAL_SOCKET]
    found: tuple[float, float] = results.get()
    return found


def main() -> None:
    title = "A step's commit without a state, steps of 20 ms (mean)"
    steps = Table("ranks", "time", "CPU time", "CPU time of a step", title=title)
    for world in (1, 2, 3):
        wall, cpu = in_group(world)
        steps.add_row(str(world), f"{wall * 1e6:.0f} µs", f"{cpu * 1e6:.0f} µs", f"{cpu / STEP_SECONDS:.2%}")
    every = [f"every, {1e3 * seconds:.0f} ms" for seconds in INTERVAL_STEP_SECONDS]
    title = "Commits (medians), and how many steps lie between them with steps so long"
    sizes = Table("state", "a commit", "during a flush", "memory / state", "at most", *every, title=title)
    for megabytes in MEGABYTES:
        with tempfile.TemporaryDirectory() as folder:
            (alone, usual), (flushed, most) = commits(folder, megabytes * 10**6)
        intervals = [str(next_interval(1, alone, seconds)) for seconds in INTERVAL_STEP_SECONDS]
        times = [f"{1e3 * alone:.1f} ms", f"{1e3 * flushed:.1f} ms", f"{usual:.2f}", f"{most:.2f}"]
        sizes.add_row(f"{megabytes} MB", *times, *intervals)
    Console(width=120).print(steps, sizes)


if __name__ == "__main__":
    main()
