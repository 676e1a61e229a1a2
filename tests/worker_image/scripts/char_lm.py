"""Trains the char-lm example's model elastically, and tells which samples each step has taken."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--example", required=True)
add("--out", type=Path, required=True)
add("--step-seconds", type=float, default=0.0)
options = parser.parse_args()
SAMPLES, EPOCHS = 650, 2
sys.path.insert(0, options.example)

from data import Samples, load_text  # noqa: E402
from model import CharLM  # noqa: E402

torch.manual_seed(1)
text, _, vocabulary = load_text(Path("/usr/share/common-licenses"))


class Numbered(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """The first samples of the text, each with its number."""

    def __init__(self) -> None:
        self.samples = Samples(text, context=16, stride=16)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return (index, *self.samples[index])


data = Numbered()
model = CharLM(vocabulary, 16, width=32, layers=2)
# Not Adam, which divides by a gradient's size: where that is nothing but rounding, as of
# attention's key bias, so would be the outcome.
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
sampler = elastic.ElasticSampler(data, 20, micro_batch_size=5, seed=2)
loader = DataLoader(data, batch_sampler=sampler, num_workers=1 if "RANK" in os.environ else 0)
state = elastic.State(
    None,
    elastic.State.Options(every=1, total_steps=EPOCHS * sampler.batches_per_epoch),
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    sampler=sampler,
)


def note(name: str, **fields: object) -> None:
    line = json.dumps(
        {
            "rank": int(os.environ.get("RANK", "0")),
            "world": int(os.environ.get("WORLD_SIZE", "1")),
            **fields,
        }
    )
    with (options.out / name).open("a") as file:
        file.write(line + "\n")


@elastic.in_process
def train() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    state.restore()
    ddp = DistributedDataParallel(model) if dist.is_initialized() else model
    for epoch in elastic.epochs(state, EPOCHS):
        for step in elastic.steps(state, loader, ddp):
            optimizer.zero_grad()
            taken: list[int] = []
            for numbers, inputs, targets in step.parts:
                scores = ddp(inputs).flatten(0, 1)
                taken += numbers.tolist() if step.samples else []
                # Before the gradients are exchanged: a rank that is killed after that has done its
                # share.
                if step.last:
                    note(
                        "steps",
                        step=step.number,
                        epoch=epoch,
                        samples=taken,
                        generation=state._version.generation,
                    )
                step.backward(torch.nn.functional.cross_entropy(scores, targets.flatten()))
            optimizer.step()
            scheduler.step()
            # The test has the training go slowly while it waits for pods, which take as long as the
            # machine is busy.
            time.sleep(0.5 if (options.out / "slow").exists() else options.step_seconds)


train()
if int(os.environ.get("RANK", "0")) == 0:
    torch.save(dict(model.state_dict()), options.out / "model.pt")
if dist.is_initialized():
    dist.destroy_process_group()
