"""Has a loop of `elastic.steps` do what people do: average, count, evaluate, write metrics."""

import argparse
import atexit
import os
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from events import event
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--in-process", action="store_true")
add("--steps", type=int, default=120)
add("--evaluation-seconds", type=float, default=0.0)
add("--stay-in-finally", action="store_true", help="a script whose end takes longer than it may")
options = parser.parse_args()
EVALUATE_EVERY = 50

data = TensorDataset(torch.randn(4000, 2), torch.randn(4000, 1))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
# As on an accelerator.
sampler = elastic.ElasticSampler(data, batch_size=8, seed=3, keep_micro_batch=True)
averaged = torch.optim.swa_utils.AveragedModel(model)
state = elastic.State(
    None,
    elastic.State.Options(every=1),
    model=model,
    optimizer=optimizer,
    sampler=sampler,
    averaged=averaged,
    seen=0,
)
metrics = Path(f"metrics-{os.environ['WORKER']}-{os.getpid()}").open("w")  # noqa: SIM115 - left open, as scripts do
atexit.register(lambda: event("at exit"))


def train() -> None:
    dist.init_process_group("gloo")
    state.restore()
    ddp = DistributedDataParallel(model)
    loader = DataLoader(data, batch_sampler=sampler)

    try:
        for step in elastic.steps(state, loader, ddp, max_steps=options.steps):
            optimizer.zero_grad()
            event("step", step=step.number)
            for inputs, targets in step.parts:
                step.backward((ddp(inputs) - targets).square().mean())
            optimizer.step()
            averaged.update_parameters(model)
            state.seen += 1
            time.sleep(0.02)
            metrics.write(f"{state.step}\n")
            if state.step % EVALUATE_EVERY == 0:
                time.sleep(options.evaluation_seconds if dist.get_rank() == 0 else 0)
                event("evaluated", step=state.step)
    finally:
        event("finally")
        if options.stay_in_finally and state.step < options.steps:
            time.sleep(3600)
    dist.destroy_process_group()


(elastic.in_process(train) if options.in_process else train)()
event("done", averaged=int(averaged.n_averaged), seen=state.seen)
