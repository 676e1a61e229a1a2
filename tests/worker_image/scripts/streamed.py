"""Trains on a stream of uneven shards, and tells each step's samples; so does a stock loader."""

import argparse
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from events import event
from stream_shards import LENGTHS, OFFSET, read
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class StockShards(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        mine = range(len(LENGTHS))[dist.get_rank() :: dist.get_world_size()]
        return chain.from_iterable(read(shard) for shard in mine)


def train() -> None:
    dist.init_process_group("gloo")
    state.restore()
    parallel_model = DistributedDataParallel(model)
    share = BATCH // dist.get_world_size()
    stock = chain(DataLoader(StockShards(), batch_size=share), repeat(torch.empty(0)))
    loader = stream.loader(num_workers=options.loader_workers)
    for step in elastic.steps(state, loader, parallel_model, epochs=options.epochs):
        optimizer.zero_grad()
        taken: list[Tensor] = []
        for batch in step.parts:
            taken.append(batch[: step.samples])
            # Before the gradients are exchanged: a rank that is killed after that has done its
            # share.
            if step.last:
                told = {"samples": torch.cat(taken).tolist(), "stock": next(stock).int().tolist()}
                event(
                    "step",
                    step=step.number,
                    epoch=step.epoch,
                    generation=state._version.generation,
                    **told,
                )
            step.backward(parallel_model(batch[:, None] / OFFSET).square().mean())
        optimizer.step()
        if options.slow.exists():
            time.sleep(0.3)
    dist.destroy_process_group()


parser = argparse.ArgumentParser()
add = parser.add_argument
add("--slow", type=Path, help="while this file is there, a step takes long")
add("--epochs", type=int, default=2)
add("--loader-workers", type=int, default=0)
add("--in-process", action="store_true")
options = parser.parse_args()
BATCH = 12
torch.manual_seed(5)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
stream = elastic.ElasticStream(
    range(len(LENGTHS)), read, BATCH, micro_batch_size=3, shuffle_block=16, seed=3
)
state = elastic.State(
    None, elastic.State.Options(every=1), model=model, optimizer=optimizer, stream=stream
)
(elastic.in_process(train) if options.in_process else train)()
