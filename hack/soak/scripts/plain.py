"""Plain torchrun code with a checkpoint every ten steps; rank 0 records each step."""

import argparse
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from events import event

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--steps", type=int, required=True)
add("--step-seconds", type=float, default=0.2)
add("--folder", type=Path, required=True)
options = parser.parse_args()
checkpoint = options.folder / "step"

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
event("began")
begin = torch.tensor(int(checkpoint.read_text()) if rank == 0 and checkpoint.exists() else 0)
dist.broadcast(begin, 0)
for step in range(int(begin) + 1, options.steps + 1):
    total = torch.ones(1)
    dist.all_reduce(total)
    if total.item() != world:
        raise ValueError(f"{world} workers add up to {total.item()}")
    if rank == 0:
        event("step", step=step)
        if step % 10 == 0:
            new = checkpoint.with_suffix(f".{os.environ['WORKER']}")
            new.write_text(str(step))
            new.replace(checkpoint)
    time.sleep(options.step_seconds)
dist.barrier()
event("done", parameters=[])
dist.destroy_process_group()
