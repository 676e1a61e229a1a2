"""Trains with DistributedDataParallel without end.

The worker of one index is slow until a file exists.
"""

import argparse
import os
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from elastic_pytorch.training.work_timer import WorkTimer
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--slow", default="1")
add("--seconds", type=float, default=0.1)
add("--well", type=Path, default=Path("/tmp/well"))
options = parser.parse_args()

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
timer, step = WorkTimer(), 0
while True:
    ill = os.environ["ELASTIC_PYTORCH_WORKER_INDEX"] == options.slow and not options.well.exists()
    time.sleep(options.seconds * (10 if ill else 1))
    loss = model(torch.ones(2, 4)).sum()
    timer.watch(loss)
    loss.backward()
    timer.end_step()
    step += 1
    elastic.report(step=step)
