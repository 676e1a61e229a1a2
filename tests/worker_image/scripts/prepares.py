"""Sets itself up before it joins: in process, or where it first reads what depends on the group."""

import argparse
import os
import sys
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from events import event
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--in-process", action="store_true")
add("--steps", type=int, default=300)
add("--world", type=int, default=1, help="the training ends in no smaller group")
add("--until", help="the set-up ends when this file is there")
add("--fail", choices=["raise", "exit", "leave"], help="how the set-up fails")
add("--no-group", action="store_true", help="nothing of the script depends on its group")
options = parser.parse_args()

event(
    "set-up",
    alone=True,
    names=sorted(name for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE") if name in os.environ),
)
while options.until and not Path(options.until).exists():
    time.sleep(0.02)
if options.fail == "raise":
    raise RuntimeError("the data set is not there")
if options.fail == "exit":
    sys.exit(7)
if options.fail == "leave":
    os._exit(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
event("set up", alone=True)
if options.no_group:
    sys.exit(0)
if not options.in_process:
    event("joined", rank=os.environ["RANK"])
state = elastic.State(None, elastic.State.Options(every=1), model=model, optimizer=optimizer)


def train() -> None:
    dist.init_process_group("gloo")
    event("group", size=dist.get_world_size())
    state.restore()
    ddp = DistributedDataParallel(model)
    while state.step < options.steps or dist.get_world_size() < options.world:
        optimizer.zero_grad()
        ddp(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        event("step", step=state.step + 1)
        time.sleep(0.02)
        state.commit()
    dist.destroy_process_group()


(elastic.in_process(train) if options.in_process else train)()
event("done", step=state.step)
