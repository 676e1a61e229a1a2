"""train.py with the training library: no step is lost, and processes live on as the group changes.

It trains a small model, so that there is a state to keep. Rank 0 prints `STEP n world=w
time=seconds`.
"""

import argparse
import os
import sys
import time
from datetime import timedelta

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
add = parser.add_argument
add("--steps", type=int, default=100_000)
add("--step-seconds", type=float, default=0.1)
add("--checkpoint-dir", default="/tmp")
add(
    "--width",
    type=int,
    default=256,
    help="of the model; its state is 24 times the square of it, in bytes",
)
options = parser.parse_args()


def say(text: str) -> None:
    sys.stdout.write(f"{text} time={time.time():.3f} host={os.environ.get('HOSTNAME', '')}\n")
    sys.stdout.flush()


model = nn.Sequential(
    nn.Linear(options.width, options.width), nn.ReLU(), nn.Linear(options.width, options.width)
)
optimizer = torch.optim.AdamW(model.parameters())
folder = os.path.join(options.checkpoint_dir, os.environ.get("TORCHELASTIC_RUN_ID", "alone"))  # noqa: PTH118
state = elastic.State(
    folder,
    elastic.State.Options(every=1, total_steps=options.steps),
    model=model,
    optimizer=optimizer,
)


@elastic.in_process
def train() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    say(f"INIT rank={rank} world={world} restart={os.environ['TORCHELASTIC_RESTART_COUNT']}")
    state.restore()
    ddp = DistributedDataParallel(model)
    while state.step < options.steps:
        loss = ddp(torch.randn(4, options.width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            say(f"STEP {state.step + 1} world={world}")
        time.sleep(options.step_seconds)
        state.commit(loss=loss)
    dist.barrier()
    say(f"DONE rank={rank}")
    dist.destroy_process_group()


train()
