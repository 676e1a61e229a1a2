"""Trains a sharded model whose state at each step is known, and checks it. Needs no FSDP2.

Each element has a constant gradient. So the weight after a step follows from the number of steps
alone, if neither a weight nor a momentum was lost or mixed up.
"""

import argparse
import os
import time

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--steps", type=int, default=100000)
add("--step-seconds", type=float, default=0.1)
options = parser.parse_args()
RATE, MOMENTUM = 1e-3, 0.9
ROWS, COLUMNS = 1000, 16  # the ranks share the rows, and no number of ranks need divide them


def rows_of(rank: int, world: int) -> range:
    """The rows that a rank has, as `torch.chunk` deals them out."""
    size = -(-ROWS // world)
    return range(min(rank * size, ROWS), min((rank + 1) * size, ROWS))


def sharded(values: torch.Tensor) -> DTensor:
    return DTensor.from_local(
        values,
        mesh,
        [Shard(0)],
        run_check=False,
        shape=(ROWS, COLUMNS),
        stride=(COLUMNS, 1),
    )


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
mine = rows_of(rank, world)
gradient = (
    torch.arange(mine.start, mine.stop, dtype=torch.float64)
    .add(1)
    .unsqueeze(1)
    .expand(-1, COLUMNS)
    .contiguous()
)
model = nn.Module()
model.weight = nn.Parameter(sharded(torch.zeros(len(mine), COLUMNS, dtype=torch.float64)))
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, foreach=False)
state = elastic.State(None, model=model, optimizer=optimizer)
print(f"RESTORED {state.restore()} rank={rank} world={world}", flush=True)


def factor(step: int) -> float:
    """What the weight after a step has of the gradient: the sum of all steps' momenta."""
    sum_of_powers = MOMENTUM * (1 - MOMENTUM**step) / (1 - MOMENTUM)
    return -RATE * (step - sum_of_powers) / (1 - MOMENTUM)


while state.step < options.steps:
    model.weight.grad = sharded(gradient.clone())
    optimizer.step()
    wrong = (
        (model.weight.detach().to_local() - factor(state.step + 1) * gradient).abs().max()
        if mine
        else torch.zeros(())
    )
    wrongs = torch.tensor([float(wrong)])
    dist.all_reduce(wrongs, dist.ReduceOp.MAX)
    if rank == 0:
        right = wrongs.item() <= 1e-9 * ROWS * (state.step + 1)
        print(
            f"STEP {state.step + 1} world={world} time={time.time():.2f} right={right} "
            f"pod={os.uname().nodename}",
            flush=True,
        )
    time.sleep(options.step_seconds)
    state.commit()
dist.destroy_process_group()
