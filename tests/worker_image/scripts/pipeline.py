"""Trains sharded pipelines of two stages, and tells which samples each rank has computed."""

import argparse
import os
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from events import event
from small_texts import new_model, texts, whole_loss
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--epochs", type=int, required=True)
add("--step-seconds", type=float, default=0.05)
add("--slow", help="the steps take that time only while this file is there")
options = parser.parse_args()


class Stage(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.layers = nn.ModuleDict({str(2 * number): new_model()[2 * number]})

    def forward(self, inputs: Tensor) -> Tensor:
        [layer] = self.layers.values()
        outputs: Tensor = layer(inputs)
        return outputs.tanh() if self.number == 0 else outputs


def run(stage: Stage, inputs: Tensor, targets: Tensor, weight: float) -> None:
    hidden = torch.empty(*inputs.shape[:-1], 8, dtype=inputs.dtype)
    if stage.number == 0:
        outputs = stage(inputs)
        dist.send(outputs.detach(), group_dst=1, group=pipeline)
        dist.recv(hidden, group_src=1, group=pipeline)
        outputs.backward(hidden)
    else:
        dist.recv(hidden, group_src=0, group=pipeline)
        (weight * whole_loss(stage(hidden.requires_grad_()), targets)).backward()
        assert hidden.grad is not None
        dist.send(hidden.grad, group_dst=0, group=pipeline)


dist.init_process_group("gloo")
mesh, data = elastic.unit_mesh(("pp",)), texts()
pipeline = mesh.get_group("pp")
stage = Stage(mesh.get_local_rank("pp"))
fully_shard(stage, mesh=mesh["replicate"])
optimizer = AdamW(stage.parameters(), lr=1e-2)
sampler = elastic.ElasticSampler(data, 12, seed=3, mesh=mesh["replicate"])
loader = DataLoader(data, batch_sampler=sampler)
state = elastic.State(
    None, elastic.State.Options(every=1), model=stage, optimizer=optimizer, sampler=sampler
)
event("restored", step=state.restore())
unit = {name: int(os.environ[f"ELASTIC_PYTORCH_{name}"]) for name in ("UNIT", "UNITS", "UNIT_RANK")}
generation = state._version.generation
for epoch in sampler.epochs(options.epochs):
    for inputs, targets, which in loader:
        with sampler.part(stage) as part:
            run(stage, inputs, targets, part.weight)
        optimizer.step()
        optimizer.zero_grad()
        samples = which[: part.samples].tolist()
        event(
            "step", step=state.step + 1, epoch=epoch, samples=samples, generation=generation, **unit
        )
        time.sleep(0 if options.slow and not Path(options.slow).exists() else options.step_seconds)
        state.commit()
event(
    "done",
    parameters=[
        number for each in stage.parameters() for number in each.full_tensor().flatten().tolist()
    ],
    **unit,
)
dist.destroy_process_group()
