"""Trains a small model with DeepSpeed's ZeRO, and tells which samples each step has taken."""

import argparse
import os
import time

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import elastic_pytorch as elastic
import torch
from elastic_pytorch.deepspeed import DeepSpeedState
from events import event
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--folder", required=True)
add("--stage", type=int, required=True)
add("--every", type=int, required=True)
add("--samples", type=int, required=True)
add("--batch-size", type=int, required=True)
add("--epochs", type=int, required=True)
add("--step-seconds", type=float, default=0.5)
options = parser.parse_args()

config = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-2, "warmup_num_steps": 30},
    },
    "zero_optimization": {"stage": options.stage},
    "checkpoint": {"load_universal": True},
}
torch.manual_seed(5)
numbers = torch.arange(options.samples, dtype=torch.float32)
data = TensorDataset(
    torch.stack([torch.sin(numbers * k / 7) for k in range(1, 9)], 1),
    torch.cos(numbers / 3),
    numbers,
)
model = nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 1))
deepspeed.init_distributed("gloo")
sampler = elastic.ElasticSampler(data, options.batch_size, micro_batch_size=4, seed=3)
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=config
)
state = DeepSpeedState(
    options.folder,
    engine,
    DeepSpeedState.Options(
        every=options.every, total_steps=options.epochs * sampler.batches_per_epoch
    ),
    sampler=sampler,
    best=9.0,
)
first = state.restore()
event("restored", step=first, best=state.best, rate=engine.get_lr()[0])
loader = DataLoader(data, batch_sampler=sampler)
taken: list[int] = []
total = 0.0
for _ in sampler.epochs(options.epochs):
    for inputs, targets, which in loader:
        with sampler.part() as part:
            engine.set_gradient_accumulation_boundary(part.last)
            loss = part.weight * nn.functional.mse_loss(engine(inputs).squeeze(1), targets)
            engine.backward(loss, scale_wrt_gas=False)
            taken += which.int().tolist() if part.samples else []
            total += loss.item()
        engine.step()
        if part.last:
            event(
                "step",
                step=state.step + 1,
                samples=taken,
                loss=total,
                rate=engine.get_lr()[0],
                global_steps=engine.global_steps,
            )
            state.best = min(state.best, 1.0)
            taken, total = [], 0.0
            time.sleep(options.step_seconds)
            state.commit(loss=loss)
event("done", step=state.step)
torch.distributed.destroy_process_group()
