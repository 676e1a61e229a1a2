"""Trains a GPT on random tokens until killed, under agents or stock torchrun; records steps."""

import argparse
import json
import os
import time
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpu.model import SIZES, Gpt

STOCK, PLAIN, IN_PROCESS = "stock", "plain", "in_process"
CHECKPOINT_STEPS = 10  # of the script for stock torchrun

parser = argparse.ArgumentParser()
parser.add_argument("--mode", choices=[STOCK, PLAIN, IN_PROCESS], required=True)
parser.add_argument("--parameters", choices=SIZES, required=True)
parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
parser.add_argument(
    "--set-up-seconds", type=float, required=True, help="of what a real script does besides"
)
parser.add_argument("--checkpoint", type=Path, required=True)
options = parser.parse_args()
if options.mode != STOCK:  # a stock script does not wait for its import
    import elastic_pytorch as elastic


def tell(**what: object) -> None:
    line = {"at": time.time(), "pid": os.getpid(), "worker": os.environ["WORKER"], **what}
    # A single write of a whole line.
    with open(os.environ["EVENTS"], "ab", buffering=0) as file:  # noqa: PTH123
        file.write((json.dumps(line) + "\n").encode())


time.sleep(options.set_up_seconds)
torch.manual_seed(7)
size = SIZES[options.parameters]
model = Gpt(size).to(options.device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(size.vocabulary, (size.batch, size.length), device=options.device)
model(tokens).backward()  # loads the kernels
model.zero_grad()
calls = count(1)
state = None if options.mode == STOCK else elastic.State(None, model=model, optimizer=optimizer)


def restore() -> int:
    """The steps that are done."""
    if state is not None:
        return state.restore()
    if not options.checkpoint.exists():
        return 0
    found = torch.load(options.checkpoint, map_location=options.device)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    return int(found["step"])


def keep(step: int) -> None:
    if state is not None:
        state.commit()
    elif step % CHECKPOINT_STEPS == 0 and dist.get_rank() == 0:
        new = options.checkpoint.with_suffix(f".{os.getpid()}")
        trained = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({"step": step, **trained}, new)
        new.replace(options.checkpoint)


def train() -> None:
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    done = restore()
    ddp, group = DistributedDataParallel(model), f"{os.getpid()}-{next(calls)}"
    for step in count(done + 1):
        if options.device == "cuda":
            torch.cuda.synchronize()
        tell(what="step", step=step, group=group, world=dist.get_world_size())
        ddp(tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        keep(step)


(elastic.in_process(train) if options.mode == IN_PROCESS else train)()
