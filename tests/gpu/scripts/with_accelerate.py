"""Accelerate as docs/use/training-library.md says: model and optimizer prepared, no loader."""

import os
import sys

sys.path.insert(0, os.environ["SCRIPTS"])

import accelerate
import elastic_pytorch as elastic
import torch
from events import event
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ["STEPS"])

torch.manual_seed(5)
numbers = torch.arange(480, dtype=torch.float32)
data = TensorDataset(
    torch.stack([torch.sin(numbers * k / 7) for k in range(1, 9)], 1), torch.cos(numbers / 3)
)
accelerator = accelerate.Accelerator(mixed_precision="bf16")
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-2))
sampler = elastic.ElasticSampler(data, 12, micro_batch_size=2, seed=3)
state = elastic.State(
    None,
    elastic.State.Options(every=1, total_steps=STEPS),
    model=net,
    optimizer=optimizer.optimizer,
    sampler=sampler,
)
world = accelerator.num_processes
event("restored", step=state.restore(), world=world, device=str(accelerator.device))
for _ in sampler.epochs(1000):
    for inputs, targets in DataLoader(data, batch_sampler=sampler):
        with sampler.part(model) as part:
            loss = nn.functional.mse_loss(
                model(inputs.to(accelerator.device)).squeeze(1), targets.to(accelerator.device)
            )
            accelerator.backward(part.weight * loss)
        if part.last:
            optimizer.step()
            optimizer.zero_grad()
            event("step", step=state.step + 1, world=world)
            state.commit()
            if state.step >= STEPS:
                break
    if state.step >= STEPS:
        break
event("done")
accelerator.end_training()
