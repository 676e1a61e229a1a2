"""Measures what the training library costs a script: each step, and each commit of states of several sizes.

    PYTHONPATH=$PWD:$PWD/hack:$PWD/worker_image .venv/bin/python -m gpu.commit_cost

`cuda` measures commits of a model and its optimizer on a GPU.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state.commit_interval import next_interval
from torch import nn

from gpu.table import align

STEP_SECONDS = 0.02
STEPS = 300
MEGABYTES = (10, 100, 1000)
TENSORS = 300  # of a state
COMMITS = 9
INTERVAL_STEP_SECONDS = (0.02, 0.1, 0.5, 2.0)
GPU_MEGABYTES = (10, 100, 1000, 10_000)
GPU_STEP_SECONDS = 0.1
GPU_STEPS = 40
GPU_MOST_MEGABYTES = 1000  # of a state whose interval is tried: that of larger ones is longer than the steps that are taken


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


class GpuCommits(NamedTuple):
    """What commits from a GPU cost, in seconds but for the last three."""

    first: float  # of the CPU: memory is taken, and its pages are locked
    library: float  # as the library has measured a commit, median
    loss: float  # by which a step with a commit takes longer than one without
    step: float  # of a step without
    interval: int  # that the library has chosen for such steps
    share: float  # of the time that commits at that interval cost; not a number: not tried
    memory: float  # that committed states take, as a multiple of the state


def on_gpu(size: int, *, overlap: bool) -> GpuCommits:
    """Commits a model with AdamW, of a given size in bytes, in steps of a tenth of a second that never wait for the GPU."""
    model = nn.ParameterList(torch.randn(size // (4 * TENSORS), device="cuda") for _ in range(TENSORS // 3))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model:
        parameter.grad = torch.randn_like(parameter)

    def step() -> None:
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call] # not a computation, whose speed would depend on how warm the GPU is
        optimizer.step()

    def timed(count: int, do: Callable[[], None]) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            do()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count

    cycles = 10**7
    timed(5, step)
    cycles = round(cycles * GPU_STEP_SECONDS / timed(5, step))

    def committing(state: elastic.State) -> Callable[[], None]:
        def do() -> None:
            step()
            state.commit()

        return do

    alone = timed(20, step)
    each = elastic.State(None, every=1, overlap=overlap, model=model, optimizer=optimizer)
    begun = time.perf_counter()
    each.restore()
    first = time.perf_counter() - begun
    timed(4, committing(each))
    loss = timed(10, committing(each)) - alone
    cost = statistics.median(each._interval._commits)
    assert each._snapshot is not None
    memory = os.fstat(each._snapshot.fd).st_blocks * 512 / size
    assert all(mapping.tensors[0].is_pinned() for mapping in each._snapshot._mappings if mapping is not None)
    each.close()
    interval, share = next_interval(1, cost, alone), float("nan")
    if size <= GPU_MOST_MEGABYTES * 10**6:
        chosen = elastic.State(None, overlap=overlap, model=model, optimizer=optimizer)
        chosen.restore()
        timed(20, committing(chosen))
        share = timed(GPU_STEPS, committing(chosen)) / timed(20, step) - 1
        interval = chosen._interval.steps
        chosen.close()
    return GpuCommits(first, cost, loss, alone, interval, share, memory)


def gpu() -> None:
    """Prints what commits from a GPU cost."""
    server = PodServer()
    os.environ[LOCAL_SOCKET] = server.prepare()
    server.start()
    head = (
        "state",
        "overlap",
        "first",
        "a commit, as measured",
        "a step takes longer by",
        "step",
        "every",
        "loss",
        "memory / state",
    )
    rows = []
    for megabytes in GPU_MEGABYTES:
        for overlap in (False, True):
            found = on_gpu(megabytes * 10**6, overlap=overlap)
            times = (f"{1e3 * seconds:.1f} ms" for seconds in (found.first, found.library, found.loss, found.step))
            shares = (f"{found.interval} steps", f"{found.share:.2%}", f"{found.memory:.2f}")
            rows.append((f"{megabytes} MB", "yes" if overlap else "no", *times, *shares))
            torch.cuda.empty_cache()
    server.close()
    print(f"Commits from {torch.cuda.get_device_name()}, torch {torch.__version__}", align(head, rows), sep="\n")


def main() -> None:
    steps = []
    for world in (1, 2, 3):
        wall, cpu = in_group(world)
        steps.append((str(world), f"{wall * 1e6:.0f} µs", f"{cpu * 1e6:.0f} µs", f"{cpu / STEP_SECONDS:.2%}"))
    print("A step's commit without a state, steps of 20 ms (mean)")
    print(align(("ranks", "time", "CPU time", "CPU time of a step"), steps))
    every = [f"every, {1e3 * seconds:.0f} ms" for seconds in INTERVAL_STEP_SECONDS]
    sizes = []
    for megabytes in MEGABYTES:
        with tempfile.TemporaryDirectory() as folder:
            (alone, usual), (flushed, most) = commits(folder, megabytes * 10**6)
        intervals = [str(next_interval(1, alone, seconds)) for seconds in INTERVAL_STEP_SECONDS]
        times = [f"{1e3 * alone:.1f} ms", f"{1e3 * flushed:.1f} ms", f"{usual:.2f}", f"{most:.2f}"]
        sizes.append((f"{megabytes} MB", *times, *intervals))
    print("Commits (medians), and how many steps lie between them with steps so long")
    print(align(("state", "a commit", "during a flush", "memory / state", "at most", *every), sizes))


if __name__ == "__main__":
    gpu() if sys.argv[1:] == ["cuda"] else main()
