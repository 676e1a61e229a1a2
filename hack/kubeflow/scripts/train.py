"""One training for all jobs: only how its state survives differs.

A step of fewer workers takes longer, as the global batch stays the same. Each process records by
events.py each group that it joins, and each step that it takes.
"""

import argparse
import os
import signal
import time
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from events import event
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 64
CALL_SECONDS = 0.05
parser = argparse.ArgumentParser(description=__doc__)
add = parser.add_argument
add("--how", choices=("plain", "library"), required=True)
add("--folder", type=Path, required=True, help="of its checkpoints")
add("--size", type=int, required=True, help="workers that the step's time is given for")
add("--step-seconds", type=float, required=True)
add("--checkpoint-every", type=int, required=True, help="steps; of the plain script")
add("--group-timeout-seconds", type=float, default=60.0, help="of init_process_group")
options = parser.parse_args()

event("start", alone=True, torch=torch.__version__)
torch.manual_seed(5)
network = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def join() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.group_timeout_seconds))


def backward(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.randn(4, WIDTH)).square().mean()
    loss.backward()
    return loss


def pace(step: int) -> None:
    """Waits as long as a step would compute, in many calls like a model, and records the step."""
    until = time.monotonic() + options.step_seconds * options.size / dist.get_world_size()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, CALL_SECONDS))
    event("step", step=step)


def plain() -> None:
    """Continues from the last checkpoint, of rank 0: now and then, and after a SIGTERM's step."""
    file = options.folder / "checkpoint.pt"
    optimizer = torch.optim.AdamW(network.parameters())
    join()
    rank, last = dist.get_rank(), 0
    if file.exists():
        last, weights, moments = torch.load(file, weights_only=True)
        network.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    signals = list[int]()
    # The handler only notes them: it may run within a step or a save.
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))

    def ends() -> bool:
        """Whether a rank has received SIGTERM; without a peer, each rank decides for itself."""
        received = torch.tensor(len(signals))
        try:
            dist.all_reduce(received)
        except RuntimeError:
            if signals:
                return True
            raise
        return bool(received)

    model = DistributedDataParallel(network)
    event("began")
    for step in count(last + 1):
        backward(model)
        optimizer.step()
        optimizer.zero_grad()
        pace(step)
        end = ends()
        if rank == 0 and (end or step % options.checkpoint_every == 0):
            new = file.with_suffix(f".{os.environ['WORKER']}")
            torch.save((step, network.state_dict(), optimizer.state_dict()), new)
            new.replace(file)
        if end and signals:
            break
        # A rank without a signal goes on, and fails as the others are gone: torchrun takes an exit
        # code of 0 for the end of the training, and would not start it again.
    dist.destroy_process_group()  # or gloo's threads may abort the exit


def library() -> None:
    import elastic_pytorch as elastic  # noqa: PLC0415 - the plain script must run where it is not

    optimizer = torch.optim.AdamW(network.parameters())
    each = elastic.State.Options(every=1)
    state = elastic.State(str(options.folder), each, model=network, optimizer=optimizer)

    @elastic.in_process
    def train() -> None:
        join()
        state.restore()
        model = DistributedDataParallel(network)
        event("began")
        while True:
            loss = backward(model)
            optimizer.step()
            optimizer.zero_grad()
            pace(state.step + 1)
            state.commit(loss=loss)

    train()


{"plain": plain, "library": library}[options.how]()
