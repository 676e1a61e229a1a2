"""Trains with Accelerate's model and loader of the evaluation, and tells which samples it takes."""

import argparse
import os
import time

import elastic_pytorch as elastic
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from events import event
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--folder", required=True)
add("--samples", type=int, required=True)
add("--batch-size", type=int, required=True)
add("--epochs", type=int, required=True)
add("--precision", default="no")
add("--step-seconds", type=float, default=0.1)
options = parser.parse_args()

set_seed(5)
accelerator = Accelerator(cpu=True, mixed_precision=options.precision)
assert accelerator.num_processes == int(os.environ["WORLD_SIZE"]), (
    "Accelerate knows the group as it is"
)
numbers = torch.arange(options.samples, dtype=torch.float32)
data = TensorDataset(
    torch.stack([torch.sin(numbers * k / 7) for k in range(1, 9)], 1),
    torch.cos(numbers / 3),
    numbers,
)
net = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
sampler = elastic.ElasticSampler(data, options.batch_size, micro_batch_size=2, seed=3)
total_steps = options.epochs * sampler.batches_per_epoch
scheduler = CosineAnnealingLR(optimizer, total_steps)
state = elastic.State(
    options.folder,
    elastic.State.Options(every=1, total_steps=total_steps),
    model=net,
    optimizer=optimizer,
    scheduler=scheduler,
    sampler=sampler,
)
event("restored", step=state.restore())
model = accelerator.prepare(net)
evaluation = accelerator.prepare(DataLoader(data, batch_size=7))  # shares that are not even


def evaluate() -> None:
    """Tells which samples all ranks together have evaluated, and their loss."""
    model.eval()
    with torch.no_grad():
        found = [
            accelerator.gather_for_metrics((which, model(inputs), targets))
            for inputs, targets, which in evaluation
        ]
    model.train()
    seen, outputs, targets = (torch.cat(column) for column in zip(*found, strict=True))
    if accelerator.is_main_process:
        event(
            "evaluated",
            step=state.step,
            samples=sorted(seen.int().tolist()),
            loss=mse_loss(outputs, targets).item(),
        )


loader = DataLoader(data, batch_sampler=sampler)
if accelerator.num_processes > 1:
    try:
        elastic.steps(state, accelerator.prepare(loader), model, epochs=options.epochs)
    except (RuntimeError, ValueError) as error:
        event("refused", message=str(error))
for _ in elastic.epochs(state, options.epochs):
    for step in elastic.steps(state, loader, model):
        optimizer.zero_grad()
        taken: list[int] = []
        total = 0.0
        for inputs, targets, which in step.parts:
            loss = mse_loss(model(inputs), targets)
            taken += which.int().tolist()[: step.samples]
            total += loss.item() * step.samples
            step.backward(loss)
        # Told when the gradients are exchanged: a rank that is killed after that has done its
        # share.
        mean, rate = (
            total * accelerator.num_processes / options.batch_size,
            scheduler.get_last_lr()[0],
        )
        event("step", step=step.number, samples=taken, loss=mean, rate=rate)
        optimizer.step()
        scheduler.step()
        time.sleep(options.step_seconds)
    evaluate()
event(
    "done", step=state.step, parameters=[x for p in net.parameters() for x in p.flatten().tolist()]
)
accelerator.end_training()
