"""Trains a model cut by tensors and sharded over units, and tells each rank's samples."""

import argparse
import os
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch.distributed as dist
from events import event
from small_texts import IGNORED, loss_of, new_model, texts
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import AdamW
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--epochs", type=int, required=True)
add("--step-seconds", type=float, default=0.05)
add("--slow", help="the steps take that time only while this file is there")
add("--in-process", action="store_true")
options = parser.parse_args()


def train() -> None:
    dist.init_process_group("gloo")
    mesh, data = elastic.unit_mesh(("tp",)), texts()
    model = parallelize_module(
        new_model(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    fully_shard(model, mesh=mesh["replicate"])
    optimizer = AdamW(model.parameters(), lr=1e-2)
    sampler = elastic.ElasticSampler(data, 12, seed=3, mesh=mesh["replicate"])
    state = elastic.State(
        None, elastic.State.Options(every=1), model=model, optimizer=optimizer, sampler=sampler
    )
    event("restored", step=state.restore())
    unit = {
        name: int(os.environ[f"ELASTIC_PYTORCH_{name}"]) for name in ("UNIT", "UNITS", "UNIT_RANK")
    }
    generation = state._version.generation
    for step in elastic.steps(
        state, DataLoader(data, batch_sampler=sampler), model, epochs=options.epochs
    ):
        optimizer.zero_grad()
        samples: list[int] = []
        for inputs, targets, which in step.parts:
            samples += which[: step.samples].tolist()
            step.backward(loss_of(model, inputs, targets), count=(targets != IGNORED).sum())
        optimizer.step()
        event(
            "step",
            step=step.number,
            epoch=step.epoch,
            samples=samples,
            generation=generation,
            **unit,
        )
        time.sleep(0 if options.slow and not Path(options.slow).exists() else options.step_seconds)
    event(
        "done",
        parameters=[
            number
            for each in model.parameters()
            for number in each.full_tensor().flatten().tolist()
        ],
    )
    dist.destroy_process_group()


(elastic.in_process(train) if options.in_process else train)()
