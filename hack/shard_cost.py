"""Measures what `elastic.ShardedState` costs: commits, copies in another pod, and restorations into groups of other sizes. On CPUs, gloo.

.venv/bin/python hack/shard_cost.py             # states of 100 MB and 1 GB a rank, in two pods; needs 10 GiB of memory
.venv/bin/python hack/shard_cost.py 100 4       # of 100 MB a rank, in four pods
.venv/bin/python hack/shard_cost.py saves 1000 2 3  # of 1 GB a rank, in two pods, three times: how checkpoints stop training; needs 6 GiB
.venv/bin/python hack/shard_cost.py frozen 100  # a model of 100 MB a rank of which 90 % are frozen, as a whole and by `elastic.Trained`
.venv/bin/python hack/shard_cost.py restarts 3 100 1000  # what losses cost, three times, of states of 100 MB and 1 GB; needs 12 GiB

Beside them, in the same run: a plain copy in memory, the bytes sent to a neighbour, and torch's distributed checkpoint in a folder.

`restarts` is for `State` as well, by the place of the state. Two pods train, and are killed within a step of half a second. Beside each
restoration the same bytes are read plainly: from a file, from the other rank, or from moto's server by one request. How much is done again
after a checkpoint follows from the time that it takes to write one, and from the library's pauses between two.
"""

import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from elastic_pytorch.group.exchange import exchange
from elastic_pytorch.rest import IDLE_SHARE
from elastic_pytorch.state.sharded.peers.memory import PeerMemory
from elastic_pytorch.state.sharded.sharded_state import FLUSH_SECONDS, ShardedState
from elastic_pytorch.state.state import State
from elastic_pytorch.state.values.trained import Trained
from elastic_pytorch.state_format.payload import memory_of
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from object_storage_cost import URL, download, local_bucket, upload

from tests.worker_image.state.test_state_memory import pods, run_pods, running_in_pods

TENSORS, COMMITS = 50, 5
COLUMNS = 256
MEGABYTES = (100, 1000)
STEP_SECONDS = 0.5  # of the training that is killed
WHOLE_FLUSH_SECONDS = 5.0  # the default of `State`


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


def saves(rows: int, folder: str, times: int) -> dict[str, float]:
    """Seconds of checkpoints on the disk."""
    state = ShardedState(folder, memory=False, model=build(rows))
    state.restore()
    found: dict[str, list[float]] = {
        "training stands still as a checkpoint begins": [],
        "until that is on the disk": [],
        "a checkpoint for which training waits": [],
    }
    for _ in range(times):
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


def measure_saves(megabytes: int, count: int, times: int = COMMITS) -> dict[str, float]:
    """The figures of checkpoints on the disk."""
    with tempfile.TemporaryDirectory() as folder, pods(count) as servers:
        found: dict[str, float] = run_pods(servers, 1, saves, rows_of(megabytes, count), folder, times)[0]
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


def model_of(rows: int, sharded: bool) -> nn.Module:
    """A model that the ranks share, or that each has as a whole."""
    return build(rows) if sharded else nn.ParameterList(torch.ones(rows, COLUMNS) for _ in range(TENSORS))


def own_tensors(model: nn.Module) -> list[torch.Tensor]:
    """What a rank has of a model."""
    tensors = (each.detach() for each in model.parameters())
    return [each.to_local() if isinstance(each, DTensor) else each for each in tensors]


def train_until_killed(rows: int, sharded: bool, steps: int) -> None:
    """Makes some steps, and dies within the next one."""
    state = State(None, model=model_of(rows, sharded))
    state.restore()
    while state.step < steps:
        time.sleep(STEP_SECONDS)
        state.commit()
    time.sleep(STEP_SECONDS / 2)
    os.kill(os.getpid(), signal.SIGKILL)


def write_checkpoint(rows: int, sharded: bool, folder: str) -> float:
    """Seconds in which a checkpoint of the first step is written."""
    state = State(folder, model=model_of(rows, sharded))
    state.restore()
    state.commit()
    return timed(state.flush)


def restart(rows: int, sharded: bool, folder: str | None, source: str, scratch: str) -> tuple[int, float, float]:
    """The step from which a group goes on, the seconds until it has the state, and those of a plain read of the same bytes."""
    model = model_of(rows, sharded)
    state = State(folder, model=model)
    seconds = timed(state.restore)
    if isinstance(state, ShardedState) and state._peers is not None:
        state._peers.finish_copies()
    return state.step, seconds, timed(plain_read(own_tensors(model), source, scratch, by_all=sharded or source == OWN))


OWN, OTHER, FOLDER, BUCKET = "memory of its pod", "memory of the other pod", "shared folder", "object storage"
LOSSES = {OWN: "a process is killed", OTHER: "a pod is lost", FOLDER: "all pods are lost", BUCKET: "all pods are lost"}


def plain_read(own: list[torch.Tensor], source: str, scratch: str, *, by_all: bool) -> Callable[[], object]:
    """What reads the bytes of a state without the library.

    Args:
        own: what this rank has of the state.
        source: where the bytes come from.
        scratch: a folder for a file of these bytes.
        by_all: whether each rank reads what it has; otherwise rank 0 alone, as of a checkpoint of which the others get it.
    """
    rank = dist.get_rank()
    if source == OTHER:
        if rank == 0:
            return partial(exchange, {1: own}, {}, None, 1)
        return partial(exchange, {}, {0: [torch.empty_like(each) for each in own]}, None, 1)
    if rank and not by_all:
        return lambda: None
    if source == BUCKET:
        upload(f"plain-{rank}", sum(each.nbytes for each in own))
        return partial(download, f"plain-{rank}")
    file = Path(scratch) / f"plain-{rank}"
    with file.open("wb") as written:
        for each in own:
            written.write(memory_of(each))

    def read() -> None:
        with file.open("rb") as opened:
            for each in own:
                opened.readinto(memory_of(each))

    return read


def restarts_of(rows: int, sharded: bool, steps: int, scratch: str) -> dict[str, tuple[float, float, int]]:
    """What each loss costs once: the seconds of the restoration, those of the plain read, and how many steps are done again."""
    found: dict[str, tuple[float, float, int]] = {}
    for source in (OWN, OTHER):  # each after a training of its own: the first restoration has what it finds copied
        with pods(2) as servers, pods(1) as new:
            with running_in_pods(servers, 1, train_until_killed, rows, sharded, steps) as group:
                # One of them may have noticed first that the other was killed.
                assert -signal.SIGKILL in group.exit_codes() and 0 not in group.exit_codes(), group.errors()
            after = servers if source == OWN else [servers[1], *new]
            step, seconds, plain = run_pods(after, 1, restart, rows, sharded, None, source, scratch)[0]
            found[source] = seconds, plain, steps + 1 - step
    for source, folder in ((FOLDER, f"{scratch}/checkpoints"), (BUCKET, f"{URL}/{Path(scratch).name}")):
        with pods(2) as servers:
            written = max(run_pods(servers, 1, write_checkpoint, rows, sharded, folder))
        with pods(2) as servers:
            step, seconds, plain = run_pods(servers, 1, restart, rows, sharded, folder, source, scratch)[0]
        assert step == 1, f"nothing was found in {folder}"
        found[source] = seconds, plain, done_again(written, sharded)
    return found


def done_again(written: float, sharded: bool) -> int:
    """How many steps are done again at most, if all is lost just before a checkpoint is complete: all since the one before was begun.

    Args:
        written: seconds in which a checkpoint is written.
        sharded: whether the next one begins a fixed time after the last one was complete.
    """
    between = written + FLUSH_SECONDS if sharded else max(WHOLE_FLUSH_SECONDS, (1 + IDLE_SHARE) * written)
    return math.ceil((between + written) / STEP_SECONDS)


def cells_of(turns: list[tuple[float, float, int]], *, at_most: bool) -> tuple[str, str, str]:
    """What a table says of one kind of restart: medians, and the most steps."""
    seconds, plain, again = (list(each) for each in zip(*turns, strict=True))
    ratio = statistics.median(ours / read for ours, read in zip(seconds, plain, strict=True))
    steps = f"{'at most ' if at_most else ''}{statistics.median(again):g}; {max(again)}"
    return f"{statistics.median(seconds):.2f}", f"{ratio:.1f} times", steps


def restarts(times: int, *sizes: int) -> None:
    """Prints a table, whose figures docs/use/storage.md has."""
    heads = [f"{megabytes} MB: {what}" for megabytes in sizes for what in ("seconds", "of a plain read", "steps again")]
    rows_told: dict[tuple[str, str], list[str]] = {}
    with local_bucket():
        for megabytes in sizes:
            rows = rows_of(megabytes, 1) // 2 * 2  # as many on both ranks
            for sharded in (False, True):
                turns = []
                for turn in range(times):
                    steps = random.Random(turn).randrange(30, 60)
                    with tempfile.TemporaryDirectory() as scratch:
                        turns.append(restarts_of(rows, sharded, steps, scratch))
                    print(f"{megabytes} MB, sharded: {sharded}", turns[-1], file=sys.stderr, flush=True)
                for source in turns[0]:
                    cells = cells_of([turn[source] for turn in turns], at_most=source in (FOLDER, BUCKET))
                    rows_told.setdefault(("sharded" if sharded else "on each rank", source), []).extend(cells)
    print(f"| the model | what happens | read from | {' | '.join(heads)} |\n|{'---|' * (3 + len(heads))}")
    for (model, source), told in rows_told.items():
        print(f"| {' | '.join((model, LOSSES[source], source, *told))} |")
    print(
        f"\nmedians of {times}; steps: the median, and the most. torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()}"
    )


def main(*told: str) -> None:
    if told[:1] == ("frozen",):
        frozen(int(told[1]))
        return
    if told[:1] == ("restarts",):
        restarts(*map(int, told[1:]))
        return
    of_state: Callable[[int, int], dict[str, float]] = measure
    if told[:1] == ("saves",):
        of_state, told = partial(measure_saves, times=int(told[3]) if len(told) > 3 else COMMITS), told[1:]
    sizes, count = (int(told[0]),) if told else MEGABYTES, int(told[1]) if len(told) > 1 else 2
    table = Table("seconds, and bytes for each byte of a shard", *(f"{size} MB a rank" for size in sizes))
    columns = [of_state(size, count) for size in sizes]
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:.2f}" for column in columns))
    Console(width=120).print(f"{count} pods of one rank, torch {torch.__version__}, {os.cpu_count()} cores", table)


if __name__ == "__main__":
    main(*sys.argv[1:])
