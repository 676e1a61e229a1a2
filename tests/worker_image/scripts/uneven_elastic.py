"""Trains without end with the training library. A worker is slow while a file of its pod exists; rank 0 prints its steps."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SLOW = Path("/tmp/slow")  # of the pod: another one in its place is not slow

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
state = elastic.State(f"/checkpoints/{os.environ['TORCHELASTIC_RUN_ID']}", every=1, model=model, optimizer=optimizer)


@elastic.in_process
def train() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    state.restore()
    ddp, timer = DistributedDataParallel(model), elastic.WorkTimer()
    while True:
        time.sleep(1.0 if SLOW.exists() else 0.1)
        loss = ddp(torch.ones(2, 4)).sum()
        timer.watch(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        timer.end_step()
        if dist.get_rank() == 0:
            sys.stdout.write(f"STEP {state.step + 1} world={dist.get_world_size()} \n")
            sys.stdout.flush()
        state.commit(loss=loss)


train()
