"""Measures what `elastic.ShardedState` costs: commits, copies in another pod, and restorations into groups of other sizes. On CPUs, gloo.

.venv/bin/python hack/shard_cost.py             # states of 100 MB and 1 GB a rank, in two pods; needs 10 GiB of memory
.venv/bin/python hack/shard_cost.py 100 4       # of 100 MB a rank, in four pods
.venv/bin/python hack/shard_cost.py saves 1000  # of 1 GB a rank, only how long checkpoints on the disk stop training; needs 6 GiB
.venv/bin/python hack/shard_cost.py frozen 100  # a model of 100 MB a rank of which 90 % are frozen, as a whole and by `elastic.Trained`

Beside them, in the same run: a plain copy in memory, the bytes sent to a neighbour, and torch's distributed checkpoint in a folder.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from elastic_pytorch.group.exchange import exchange
from elastic_pytorch.state.sharded.peer_memory import PeerMemory
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state.values.trained import Trained
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.worker_image.state.test_state_memory import pods, run_pods

TENSORS, COMMITS = 50, 5
COLUMNS = 256
MEGABYTES = (100, 1000)


def build(rows: int) -> nn.Module:
    """A model of tensors with a number of rows, which the ranks share as `torch.chunk` does."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh, size = init_device_mesh("cpu", (world,)), -(-rows // world)
    mine = max(0, min(size, rows - rank * size))
    shape, stride = torch.Size((rows, COLUMNS)), (COLUMNS, 1)
    return nn.ParameterList(
        DTensor.from_local(torch.ones(mine, COLUMNS), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)
        for _ in range(TENSORS)
    )


def timed(function: Callable[[], object]) -> float:
    """Returns the seconds that the slowest rank needs."""
    dist.barrier()
    begun = time.perf_counter()
    function()
    dist.barrier()
    return time.perf_counter() - begun


def time_commits(state: ShardedState, peers: PeerMemory) -> tuple[list[float], list[float]]:
    """Seconds of some commits, and of the copies of each in the other pod."""
    committed, copied = [], []
    for _ in range(COMMITS):
        peers.finish_copies()
        while not peers.may_copy:
            time.sleep(0.01)
            peers.ask()
        committed.append(timed(state.commit))
        copied.append(timed(peers.finish_copies))
    return committed, copied


def commits(rows: int, folder: str) -> dict[str, float]:
    """Seconds of what a group does that trains, and the memory that it takes."""
    model = build(rows)
    own: list[torch.Tensor] = [each.detach().to_local() for each in model.parameters()]  # type: ignore[attr-defined] # DTensors
    state = ShardedState(None, every=1, model=model)
    state.restore()
    peers = state._peers
    assert peers is not None
    committed, copied = time_commits(state, peers)
    neighbour, other = (dist.get_rank() + 1) % dist.get_world_size(), (dist.get_rank() - 1) % dist.get_world_size()
    received = [torch.empty_like(each) for each in own]
    taken = sum(os.fstat(each.fd).st_blocks * 512 for each in (peers._memory.own, peers._memory.copies))
    return {
        "a commit": statistics.median(committed),
        "the copies": statistics.median(copied),
        "a plain copy in memory": timed(lambda: [target.copy_(each) for target, each in zip(received, own, strict=True)]),
        "the bytes to a neighbour": timed(lambda: exchange({neighbour: own}, {other: received}, None, 1)),
        "saved by torch in a folder": timed(lambda: save({"model": model.state_dict()}, checkpoint_id=folder)),
        "loaded by torch from it": timed(lambda: load({"model": model.state_dict()}, checkpoint_id=folder)),
        "memory, times the shards": taken / sum(each.nbytes for each in own),
    }


def saves(rows: int, folder: str) -> dict[str, float]:
    """Seconds of checkpoints on the disk."""
    state = ShardedState(folder, memory=False, model=build(rows))
    state.restore()
    found: dict[str, list[float]] = {
        "training stands still as a checkpoint begins": [],
        "until that is on the disk": [],
        "a checkpoint for which training waits": [],
    }
    for _ in range(COMMITS):
        dist.barrier()
        begun = time.perf_counter()
        state._begin_save(state._tree())
        seconds = time.perf_counter() - begun  # the other rank need not have come so far
        found["training stands still as a checkpoint begins"].append(seconds)
        found["until that is on the disk"].append(timed(lambda: state._take_saved(wait=True)))
        found["a checkpoint for which training waits"].append(timed(state._save))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def restore(rows: int) -> float:
    """Seconds of a restoration."""
    state = ShardedState(None, every=1, model=build(rows))
    return timed(state.restore)


def rows_of(megabytes: int, count: int) -> int:
    """How many rows the tensors have of a model that has some megabytes on each rank."""
    return megabytes * 1_000_000 // (4 * COLUMNS * TENSORS) * count


def measure_saves(megabytes: int, count: int) -> dict[str, float]:
    """The figures of checkpoints on the disk."""
    with tempfile.TemporaryDirectory() as folder, pods(count) as servers:
        found: dict[str, float] = run_pods(servers, 1, saves, rows_of(megabytes, count), folder)[0]
        return found


def measure(megabytes: int, count: int) -> dict[str, float]:
    """All figures of a state, given its megabytes on each rank."""
    rows = rows_of(megabytes, count)
    with tempfile.TemporaryDirectory() as folder, pods(count) as servers, pods(2) as new:
        found: dict[str, float] = run_pods(servers, 1, commits, rows, folder)[0]
        for name, after in (
            ("restored by the same pods", servers),
            ("by one less", servers[1:]),
            ("by two more", [*servers, *new]),
        ):
            found[name] = max(run_pods(after, 1, restore, rows))
    return found | measure_saves(megabytes, count)


def adapted(rows: int, folder: str, trained_only: bool) -> dict[str, float]:
    """What a model costs of which 90 % are frozen."""
    model = build(rows)
    for each in list(model.parameters())[: TENSORS * 9 // 10]:
        each.requires_grad_(False)
    optimizer = torch.optim.AdamW(each for each in model.parameters() if each.requires_grad)
    for each in model.parameters():
        each.grad = torch.zeros_like(each) if each.requires_grad else None
    optimizer.step()
    kept: Any = Trained(model) if trained_only else model
    state = ShardedState(folder, every=1, flush_seconds=1e9, model=kept, optimizer=optimizer)
    found = {"restore(), which finds nothing": timed(state.restore), "the first commit": timed(state.commit)}
    peers = state._peers
    assert peers is not None
    committed, copied = time_commits(state, peers)
    found |= {"a commit": statistics.median(committed), "the copies in the other pod": statistics.median(copied)}
    found["a checkpoint on the disk"] = timed(state.flush)
    found["MB of a commit"] = peers.snapshot.slots()[0].length / 1e6
    found["MB of a checkpoint"] = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
    return found


def frozen(megabytes: int) -> None:
    """Shows what a model costs of which 90 % are frozen, as a whole and by its trained part."""
    rows = rows_of(megabytes, 2)
    table = Table(f"a model of {megabytes} MB a rank, 90 % frozen: seconds, medians", "as a whole", "Trained")
    columns = []
    for trained_only in (False, True):
        with tempfile.TemporaryDirectory() as folder, pods(2) as servers:
            columns.append(run_pods(servers, 1, adapted, rows, folder, trained_only)[0])
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:.3f}" for column in columns))
    Console(width=120).print(f"2 pods of one rank, torch {torch.__version__}, {os.cpu_count()} cores", table)


def main(*told: str) -> None:
    if told[:1] == ("frozen",):
        frozen(int(told[1]))
        return
    of_state, told = (measure_saves, told[1:]) if told[:1] == ("saves",) else (measure, told)
    sizes, count = (int(told[0]),) if told else MEGABYTES, int(told[1]) if len(told) > 1 else 2
    table = Table("seconds, and bytes for each byte of a shard", *(f"{size} MB a rank" for size in sizes))
    columns = [of_state(size, count) for size in sizes]
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:.2f}" for column in columns))
    Console(width=120).print(f"{count} pods of one rank, torch {torch.__version__}, {os.cpu_count()} cores", table)


if __name__ == "__main__":
    main(*sys.argv[1:])
